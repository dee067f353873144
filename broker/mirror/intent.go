package mirror

import "stet/broker/meta"

// intent is what the metadata log wants of a partition that this broker leads (SPEC section 3, rule g).
type intent struct {
	mirror   string
	mirrorID [16]byte
	mode     meta.MirrorTopicState
	// start is the metadata offset of the last start.
	start     int64
	overwrite bool
	// barrierEnd is the end of the last stop barrier, -1 for none.
	barrierEnd int64
	// aligned says that only this mirror has written to the log since it was last aligned with the source.
	aligned bool
}

// intentOf reads the intent for a partition out of an image.
func intentOf(img *meta.Image, t *meta.Topic, partition int32) intent {
	cfg := img.Config(meta.ResourceTopic, t.Name)
	in := intent{barrierEnd: t.Partitions[partition].BarrierEnd}
	in.mirror, in.mode = meta.MirrorNameOf(cfg)
	in.start, in.overwrite = meta.MirrorStartOf(cfg)
	if m := img.Mirror(in.mirror); m != nil {
		in.mirrorID = m.ID
		in.aligned = t.Partitions[partition].AlignedMirrorID == m.ID
	}
	return in
}

// concerns says whether the partition needs a driver: it is in a mirror, or a stop barrier has to be
// checked that the mirror left behind when it was deleted.
func (in intent) concerns() bool { return in.mode != meta.NotMirrored || in.barrierEnd >= 0 }

// mayOpen says whether clients may append, as far as the metadata know.
func (in intent) mayOpen() bool {
	return in.mode == meta.NotMirrored || in.mode == meta.MirrorStopping || in.mode == meta.MirrorStopped
}

// InitialGate is the gate of a partition before the Manager has said anything: closed where the
// topic is in a mirror or has a barrier whose presence was not checked yet.
func InitialGate(img *meta.Image, t *meta.Topic, partition int32) Gate {
	in := intentOf(img, t, partition)
	if !in.concerns() {
		return Gate{Kind: GateOpen}
	}
	return Gate{Kind: GateUnknown, Mirror: in.mirror}
}

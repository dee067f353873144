package dumplog

import (
	"os"
	"path/filepath"

	"stet/broker/log"
)

const (
	epochsName     = "leader-epoch-checkpoint"
	txnEntry       = 34
	snapshotHead   = 10 // version, CRC32C, number of entries
	snapshotEntry  = 46
	recoveryName   = "recovery-point-offset-checkpoint"
	logStartName   = "log-start-offset-checkpoint"
	highWatermarks = "replication-offset-checkpoint"
	cleanerName    = "cleaner-offset-checkpoint"
	cleanMarker    = ".kafka_cleanshutdown"
	compactedName  = "stet.compacted"
	metaName       = "meta.properties"
)

func (p *printer) txnIndex(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	es, err := log.DecodeTxnIndex(b)
	for _, e := range es {
		if p.o.JSON {
			p.line(txnLine{"abortedTransaction", 0, e.ProducerID, e.FirstOffset, e.LastOffset, e.LastStableOffset})
		}
		p.printf("version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n", e.ProducerID, e.FirstOffset, e.LastOffset, e.LastStableOffset)
	}
	return err
}

func (p *printer) snapshot(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	es, err := log.DecodeSnapshot(b)
	if err != nil {
		return err
	}
	for _, e := range es {
		if p.o.JSON {
			l := producerLine{Type: "producer", ProducerID: e.ProducerID, ProducerEpoch: e.ProducerEpoch, CoordinatorEpoch: e.CoordinatorEpoch, CurrentTxnFirstOffset: place(e.TxnFirstOffset), LastTimestamp: e.LastTimestamp}
			if e.HasBatch {
				l.FirstSequence, l.LastSequence, l.LastOffset, l.OffsetDelta = &e.FirstSequence, &e.LastSequence, &e.LastOffset, &e.OffsetDelta
			}
			p.line(l)
			continue
		}
		p.printf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
			e.ProducerID, e.ProducerEpoch, e.CoordinatorEpoch, optional(e.TxnFirstOffset), e.LastTimestamp)
		if e.HasBatch {
			p.printf(" firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
				e.FirstSequence, e.LastSequence, e.LastOffset, e.OffsetDelta, e.LastTimestamp)
		}
		p.printf("\n")
	}
	return nil
}

// checkpoint prints a file of offsets; Kafka's dump-log leaves these out.
func (p *printer) checkpoint(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if filepath.Base(name) == epochsName {
		es, err := log.DecodeEpochs(b)
		if err != nil {
			return err
		}
		for _, e := range es {
			if p.o.JSON {
				p.line(epochLine{"epoch", e.Epoch, e.Start})
			}
			p.printf("epoch: %d startOffset: %d\n", e.Epoch, e.Start)
		}
		return nil
	}
	lines, err := log.DecodeCheckpoint(b)
	if err != nil {
		return err
	}
	for _, o := range lines {
		if p.o.JSON {
			p.line(checkpointLine{"checkpoint", o.Topic, o.Partition, o.Offset})
		}
		p.printf("topic: %s partition: %d offset: %d\n", o.Topic, o.Partition, o.Offset)
	}
	return nil
}

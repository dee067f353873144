package mirror

import (
	"context"
	"errors"
	"testing"

	"stet/broker/mirrormsg"
)

func TestLowestCut(t *testing.T) {
	resp := mirrormsg.NewPtrDescribeMirrorsResponse()
	m := mirrormsg.NewDescribeMirrorsResponseMirror()
	topic := mirrormsg.NewDescribeMirrorsResponseMirrorTopic()
	topic.TopicName, topic.TopicID = "t", [16]byte{1}
	for i := range int32(2) {
		p := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartition()
		p.PartitionIndex = i
		for _, c := range []struct {
			offset int64
			epoch  int32
		}{{5, 3}, {90, 12}, {70, 14}} {
			pc := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartitionCut()
			pc.Offset, pc.LeaderEpoch = c.offset+int64(i), c.epoch
			p.Cuts = append(p.Cuts, pc)
		}
		topic.Partitions = append(topic.Partitions, p)
	}
	m.Topics = append(m.Topics, topic)
	resp.Mirrors = append(resp.Mirrors, m)
	for _, tc := range []struct {
		id     [16]byte
		index  int32
		latest int32
		want   int64
	}{
		{[16]byte{1}, 0, 10, 70}, {[16]byte{1}, 1, 10, 71}, {[16]byte{1}, 0, 2, 5}, {[16]byte{1}, 0, 14, -1}, {[16]byte{2}, 0, 2, -1}, {[16]byte{1}, 7, 2, -1},
	} {
		if got := lowestCut(resp, "t", tc.id, tc.index, tc.latest); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// A stop interrupts a partition that waits for somebody else's question to the source.
func TestAskingTheSourceCanBeInterrupted(t *testing.T) {
	u := &upstream{askingMirrors: make(chan struct{}, 1)}
	u.askingMirrors <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := u.askMirrors(ctx, &u.statesAnswer, ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

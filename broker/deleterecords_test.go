package broker_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDeleteRecords: the log start moves and is answered; each refusal has Kafka's code; a
// mirror topic is refused until it is stopped.
func TestDeleteRecords(t *testing.T) {
	w := newWorld(t)
	src := w.src.CreateTopic("mirrored", 1)
	w.src.Append(src, 0, data(0, 0, -1, -1, -1, false, "a", "b", "c"))
	adm := kadm.NewClient(w.cl)
	for topic, policy := range map[string]string{"plain": "delete", "compact": "compact", "both": "compact,delete"} {
		if _, err := adm.CreateTopic(w.ctx, 1, 1, map[string]*string{"cleanup.policy": &policy}, topic); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := w.cl.ProduceSync(w.ctx, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.create()
	w.startTopics("mirrored")
	w.caughtUp()
	check := func(topic string, partition int32, offset, low int64, code int16) {
		t.Helper()
		req := kmsg.NewPtrDeleteRecordsRequest()
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = partition, offset
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics, req.TimeoutMillis = append(req.Topics, rt), 5000
		for _, sh := range w.cl.RequestSharded(w.ctx, req) {
			if sh.Err != nil {
				t.Fatalf("%s: %v", topic, sh.Err)
			}
			got := sh.Resp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
			if got.LowWatermark != low || got.ErrorCode != code {
				t.Errorf("%s %d to %d: start %d, %v; want %d, %v", topic, partition, offset, got.LowWatermark, kerr.ErrorForCode(got.ErrorCode), low, kerr.ErrorForCode(code))
			}
		}
	}
	check("plain", 0, 3, 3, 0)
	check("plain", 0, 2, 3, 0) // never back
	check("plain", 0, 6, -1, kerr.OffsetOutOfRange.Code)
	check("plain", 0, -2, -1, kerr.OffsetOutOfRange.Code)
	check("both", 0, -1, 5, 0)
	check("compact", 0, 1, -1, kerr.PolicyViolation.Code)
	check("mirrored", 0, 1, -1, kerr.PolicyViolation.Code)
	w.stop("mirrored")
	check("mirrored", 0, 1, 1, 0)
	starts, err := adm.ListStartOffsets(w.ctx, "plain", "both", "compact")
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]int64{"plain": 3, "both": 5, "compact": 0} {
		if o, _ := starts.Lookup(topic, 0); o.Offset != want {
			t.Errorf("%s starts at %d, want %d", topic, o.Offset, want)
		}
	}
	w.restart(nil)
	starts, err = kadm.NewClient(w.cl).ListStartOffsets(w.ctx, "plain")
	if o, _ := starts.Lookup("plain", 0); err != nil || o.Offset != 3 {
		t.Errorf("after a restart the log starts at %d (%v)", o.Offset, err)
	}
}

package broker_test

import (
	"bytes"
	"testing"

	"stet/zerocopy/batch"
)

// TestHotPathEndToEnd is goal G10 on a whole broker: what the source sends is read
// once into a lease, its checksum is read once, it is written once, as it is, and
// goes out from the file without a copy.
func TestHotPathEndToEnd(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 4)
	const batches = 800
	var total int64
	for i := range batches {
		total += int64(len(w.src.Produce(topic, int32(i%4), 16, 1000)))
	}
	w.create()
	before := counters(t, w.b)
	w.startTopics("t")
	w.caughtUp()
	w.pause("t") // nothing is under way any more
	c := w.b.FetchCounters()
	after := counters(t, w.b)
	if n := c.CheckedBytes.Load(); n != total {
		t.Errorf("the checksum of %d bytes was read, %d came: not once per byte", n, total)
	}
	if n := c.AppendedBytes.Load(); n != total {
		t.Errorf("%d bytes were written to logs, %d came", n, total)
	}
	if n := c.AppendedBatches.Load(); n != batches {
		t.Errorf("%d batches, want %d", n, batches)
	}
	if n := c.Appends.Load(); n > batches/8 {
		t.Errorf("%d appends of %d batches of 16 kB: one write is to take many", n, batches)
	}
	// Copy one: what was read from the socket is the batches, the cut-off ends and a little around them.
	if extra := c.ResponseBytes.Load() - total - c.CutBytes.Load(); extra < 0 || extra > 500*c.Responses.Load() {
		t.Errorf("%d bytes of responses for %d bytes of batches and %d cut off", c.ResponseBytes.Load(), total, c.CutBytes.Load())
	}
	if n := c.IgnoredBytes.Load(); n != 0 {
		t.Errorf("%d bytes were fetched for nothing", n)
	}
	w.nothingLeased()
	var in float64
	for p := range 4 {
		in += after[seriesOf("stet_mirror_in_bytes_total", p)]
	}
	if int64(in) != total {
		t.Errorf("stet_mirror_in_bytes_total says %.0f, %d came", in, total)
	}

	// Out: by sendfile, in the same bytes.
	for p := range int32(4) {
		if got := w.stored("t", p, 0); !bytes.Equal(got, w.src.Bytes(topic, p)) {
			t.Errorf("t-%d is not the source's", p)
		}
	}
	out := counters(t, w.b)
	sent := out["stet_broker_out_sendfile_bytes_total"] - before["stet_broker_out_sendfile_bytes_total"]
	if copied := out["stet_broker_out_copied_bytes_total"] - before["stet_broker_out_copied_bytes_total"]; sent < 0.99*float64(total) || copied != 0 {
		t.Errorf("%.0f of %d bytes went by sendfile, %.0f by a copy", sent, total, copied)
	}
}

func seriesOf(name string, partition int) string {
	return name + `{mirror="m",partition="` + string(rune('0'+partition)) + `",topic="t"}`
}

// A batch of 20 MiB through a mirror that asks for 1 MiB per partition: the first
// batch of a response is whole, whatever the limits say, and the small ones around it go on.
func TestC12LargeBatch(t *testing.T) {
	w := newWorld(t)
	topic := w.src.CreateTopic("t", 2)
	w.src.Change(func() { topic.Configs["max.message.bytes"] = "25000000" })
	noise := make([]byte, 20<<20)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	w.src.Produce(topic, 0, 3, 50)
	w.src.Append(topic, 0, batch.Build(nil, batch.Header{BaseOffset: 3, Timestamp: 1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, batch.KV{Value: noise}))
	w.src.Produce(topic, 0, 3, 50)
	for range 20 {
		w.src.Produce(topic, 1, 3, 1000)
	}
	w.create("fetch.max.bytes", "1048576", "fetch.response.max.bytes", "4194304")
	w.startTopics("t")
	w.wait("all is copied", func(p part) bool { return mirroring(p) && (p.PartitionIndex == 1 || p.DestinationOffset == 7) })
	w.same(topic)
	if recs := consume(w.ctx, t, w.b.Addr(), "t", 67); len(recs) < 67 {
		t.Errorf("%d records", len(recs))
	}
	w.pause("t")
	w.nothingLeased()
}

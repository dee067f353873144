package sink_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"stet/benchmarks/sink"
	"stet/loadgen"
)

// TestSinkCountsWhatItThrowsAway: every record is acknowledged and counted, whatever the sizes of requests are.
func TestSinkCountsWhatItThrowsAway(t *testing.T) {
	for _, o := range []loadgen.Options{
		{RecordSize: 10, BatchSize: 20},
		{RecordSize: 1000, BatchSize: 16384},
		{RecordSize: 1000, BatchSize: 1 << 20},
		{RecordSize: 5 << 20, BatchSize: 1},
	} {
		s, err := sink.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o.Acks, o.Partitions, o.Create, o.Producers, o.Duration = -1, 3, true, 2, 500*time.Millisecond
		var acked atomic.Int64
		o.Acked = func(_ int32, _ int64, _, n int, _ time.Time) { acked.Add(int64(n)) }
		r, err := loadgen.Produce(context.Background(), s.Addr(), "load", o)
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		if r.Load.Errors != 0 || acked.Load() == 0 || acked.Load() != s.Bytes() {
			t.Errorf("%d bytes in records of %d: %d errors, %d bytes acknowledged, %d arrived", o.BatchSize, o.RecordSize, r.Load.Errors, acked.Load(), s.Bytes())
		}
	}
}

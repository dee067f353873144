package broker_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/broker"
	"stet/internal/testkit"
	"stet/zerocopy/batch"
)

// TestCorruptBatchOverTheWire: a bit of a record flips while the broker is down. A fetch gets what lies before the batch, then CORRUPT_MESSAGE
// for that partition alone, and what lies behind it; by sendfile and by copies. The other partition does not notice.
func TestCorruptBatchOverTheWire(t *testing.T) {
	for name, size := range map[string]int{"sendfile": 100_000, "copied": 1000} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			b := testkit.StartBroker(t, dir)
			ctx := testkit.Context(t)
			cl := testkit.Client(t, b.Addr())
			r, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, "t")
			if err != nil {
				t.Fatal(err)
			}
			var stored [][]byte
			for i := range 4 {
				sent := oneBatch(bytes.Repeat([]byte{byte('a' + i)}, size))
				for part := range int32(2) {
					if got := produceRaw(ctx, t, cl, "t", part, -1, bytes.Clone(sent)); got.ErrorCode != 0 {
						t.Fatal(kerr.ErrorForCode(got.ErrorCode))
					}
				}
				batch.Batch(sent).SetBaseOffset(int64(i))
				batch.Batch(sent).SetPartitionLeaderEpoch(0)
				stored = append(stored, sent)
			}
			cl.Close()
			testkit.StopBroker(t, b)
			file := filepath.Join(dir, "t-0", "00000000000000000000.log")
			p, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p[2*len(stored[0])+len(stored[0])/2] ^= 16
			if err := os.WriteFile(file, p, 0o644); err != nil {
				t.Fatal(err)
			}

			b = testkit.StartBroker(t, dir, "log.check.io.max.bytes.per.second=0")
			cl = testkit.Client(t, b.Addr())
			before := counters(t, b)
			if n := before["stet_broker_log_corrupt_batches_total"]; n != 0 {
				t.Errorf("%v corrupt batches before anybody read", n)
			}
			sessions := fetchRequest(r.ID, 0, want{0, 0}, want{1, 0})
			sessions.SessionEpoch = 0
			for offset, want := range map[int64]struct {
				code  int16
				bytes []byte
			}{
				0: {0, bytes.Join(stored[:2], nil)},
				2: {kerr.CorruptMessage.Code, nil},
				3: {0, stored[3]},
			} {
				for range 2 {
					req := sessions
					req.SessionID, req.SessionEpoch = 0, 0
					req.Topics[0].Partitions[0].FetchOffset = offset
					resp := doFetch(ctx, t, cl, req, 16)
					if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
						t.Fatalf("offset %d: %+v", offset, resp)
					}
					got, other := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
					if got.ErrorCode != want.code || !bytes.Equal(got.RecordBatches, want.bytes) || got.HighWatermark != 4 && want.code == 0 {
						t.Errorf("offset %d: %v, %d bytes, want %v, %d", offset, kerr.ErrorForCode(got.ErrorCode), len(got.RecordBatches), kerr.ErrorForCode(want.code), len(want.bytes))
					}
					if other.ErrorCode != 0 || !bytes.Equal(other.RecordBatches, bytes.Join(stored, nil)) {
						t.Errorf("offset %d: the other partition: %v, %d bytes", offset, kerr.ErrorForCode(other.ErrorCode), len(other.RecordBatches))
					}
				}
			}
			after := counters(t, b)
			if n := after["stet_broker_log_corrupt_batches_total"]; n != 1 {
				t.Errorf("%v corrupt batches counted", n)
			}
			if sent := after["stet_broker_out_sendfile_bytes_total"] - before["stet_broker_out_sendfile_bytes_total"]; (sent > 0) != (name == "sendfile") {
				t.Errorf("%v bytes by sendfile", sent)
			}

			// A consumer is told, and one that seeks past it goes on.
			c := testkit.Client(t, b.Addr(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(2)}}), kgo.KeepRetryableFetchErrors())
			fs := c.PollFetches(ctx)
			if err := fs.Err(); !errors.Is(err, kerr.CorruptMessage) {
				t.Errorf("a consumer at the batch: %v", err)
			}
			c.SetOffsets(map[string]map[int32]kgo.EpochOffset{"t": {0: {Epoch: -1, Offset: 3}}})
			for got := 0; got == 0; {
				fs := c.PollFetches(ctx)
				if ctx.Err() != nil {
					t.Fatal("nothing behind the batch")
				}
				fs.EachRecord(func(rec *kgo.Record) {
					if got++; rec.Offset != 3 {
						t.Errorf("offset %d", rec.Offset)
					}
				})
			}
		})
	}
}

// TestCheckRateLive: the rate of the check in the background is the default's, then the one that is set through the protocol, also after a
// restart; a negative one is refused.
func TestCheckRateLive(t *testing.T) {
	w := newWorld(t)
	if n := w.b.CheckRate(); n != 4<<20 {
		t.Errorf("%d bytes per second", n)
	}
	w.alter("", "log.check.io.max.bytes.per.second", "0")
	if n := w.b.CheckRate(); n != 0 {
		t.Errorf("%d bytes per second, set to 0", n)
	}
	w.alter("", "log.check.io.max.bytes.per.second", "1000")
	w.restart(nil)
	if n := w.b.CheckRate(); n != 1000 {
		t.Errorf("%d bytes per second after a restart, set to 1000", n)
	}
	if _, err := broker.LoadConfig("", []string{"log.check.io.max.bytes.per.second=-1"}); err == nil {
		t.Error("a negative rate is taken")
	}
}

package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"stet/internal/clock"
	"stet/internal/vfs"
	"stet/zerocopy/batch"
)

// t0 is where the tests' clock begins.
var t0 = time.UnixMilli(1_700_000_000_000)

type env struct {
	t     testing.TB
	fs    vfs.FS
	mem   *vfs.Mem
	clock *clock.Manual
	cfg   Config
	m     *Manager
	logs  bytes.Buffer
}

func newEnv(t testing.TB) *env {
	e := &env{t: t, mem: vfs.NewMem(), clock: clock.NewManual(t0), cfg: DefaultConfig()}
	e.fs = e.mem
	return e
}

func (e *env) open() *Manager {
	e.t.Helper()
	m, err := e.tryOpen()
	if err != nil {
		e.t.Fatal(err)
	}
	return m
}

func (e *env) tryOpen() (*Manager, error) {
	m, err := OpenManager(ManagerOptions{
		FS: e.fs, Dirs: []string{"/data"}, NodeID: 1, Clock: e.clock, MaxOpenFiles: 16,
		Logger: slog.New(slog.NewTextHandler(&e.logs, nil)),
	}, func(string) Config { return e.cfg })
	e.m = m
	return m, err
}

var testID = [16]byte{1, 2, 3}

func (e *env) create() *Log {
	e.t.Helper()
	if e.m == nil {
		e.open()
	}
	l, err := e.m.Create("t", 0, testID, 7, e.cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	return l
}

// crash goes on with what a killed process leaves (power false), or a power failure.
func (e *env) crash(mem *vfs.Mem) *Log {
	e.t.Helper()
	e.mem, e.fs = mem, mem
	e.m = nil
	e.open()
	return e.create()
}

func (e *env) reopen() *Log {
	e.t.Helper()
	if err := e.m.Close(); err != nil {
		e.t.Fatal(err)
	}
	e.m = nil
	e.open()
	l := e.m.Get("t", 0)
	if l == nil {
		e.t.Fatal("partition is gone after a clean restart")
	}
	if err := l.Err(); err != nil {
		e.t.Fatal(err)
	}
	return l
}

// hdr is a plain batch header at time t0.
func hdr() batch.Header {
	return batch.Header{Timestamp: t0.UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
}

func kvs(n int, tag string) []batch.KV {
	out := make([]batch.KV, n)
	for i := range out {
		out[i] = batch.KV{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%s-%d", tag, i)}
	}
	return out
}

func plain(n int, tag string) []byte { return batch.Build(nil, hdr(), kvs(n, tag)...) }

func plainAt(h batch.Header, n int) []byte { return batch.Build(nil, h, kvs(n, "p")...) }

// at is a follower's batch: n records from base on in the epoch.
func at(base int64, epoch int32, n int) []byte {
	h := hdr()
	h.BaseOffset, h.PartitionLeaderEpoch = base, epoch
	return batch.Build(nil, h, kvs(n, fmt.Sprint(base))...)
}

func idem(pid int64, epoch int16, seq int32, n int) []byte {
	h := hdr()
	h.ProducerID, h.ProducerEpoch, h.BaseSequence = pid, epoch, seq
	return batch.Build(nil, h, kvs(n, "i")...)
}

func txn(pid int64, epoch int16, seq int32, n int) []byte {
	h := hdr()
	h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.Attributes = pid, epoch, seq, batch.AttrTransactional
	return batch.Build(nil, h, kvs(n, "x")...)
}

func endTxn(pid int64, epoch int16, commit bool, coord int32) []byte {
	h := hdr()
	h.ProducerID, h.ProducerEpoch = pid, epoch
	return batch.BuildEndTxn(nil, h, commit, coord)
}

func pidReset() []byte {
	h := hdr()
	h.Attributes = batch.AttrControl
	return batch.Build(nil, h, batch.KV{Key: []byte{0, 0, 0, 7}, Value: []byte{0, 0, 1, 0}})
}

func (e *env) lead(l *Log, b []byte, epoch int32, o Origin) AppendResult {
	e.t.Helper()
	r, err := l.AppendAsLeader(b, epoch, o)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

func (e *env) follow(l *Log, b ...[]byte) AppendResult {
	e.t.Helper()
	r, err := l.AppendAsFollower(bytes.Join(b, nil))
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// nextOf is the offset after the last whole batch of p.
func nextOf(t testing.TB, p []byte, offset int64) int64 {
	t.Helper()
	for rest := p; len(rest) > 0; {
		b, next, err := batch.Next(rest)
		if errors.Is(err, batch.ErrIncomplete) && len(rest) < len(p) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		offset, rest = b.NextOffset(), next
	}
	return offset
}

// readAll returns all stored bytes from offset to bound.
func readAll(t testing.TB, l *Log, offset, bound int64) []byte {
	t.Helper()
	var out []byte
	for {
		s, err := l.Read(offset, 1<<20, bound, true)
		if err != nil {
			t.Fatal(err)
		}
		if s.Len() == 0 {
			return out
		}
		p := make([]byte, s.Len())
		if n, err := s.ReadAt(p, 0); n != len(p) || (err != nil && !errors.Is(err, io.EOF)) {
			t.Fatalf("read %d of %d: %v", n, len(p), err)
		}
		s.Release()
		for rest := p; len(rest) > 0; {
			b, next, err := batch.Next(rest)
			if errors.Is(err, batch.ErrIncomplete) && len(rest) < len(p) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b...)
			offset = b.NextOffset()
			rest = next
		}
	}
}

package quorum

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"stet/broker/meta"
)

// A proposal on disk: format version, base offset, records.
const proposalVersion = 1

func encodeProposal(base int64, recs []meta.Record) []byte {
	dst := binary.BigEndian.AppendUint64([]byte{proposalVersion}, uint64(base))
	return meta.Encode(dst, recs)
}

func decodeProposal(data []byte) (base int64, recs []meta.Record, err error) {
	if len(data) < 9 || data[0] != proposalVersion {
		return 0, nil, fmt.Errorf("metadata log entry of %d bytes: format is not known to this version of Stet", len(data))
	}
	recs, err = meta.Decode(data[9:])
	return int64(binary.BigEndian.Uint64(data[1:])), recs, err
}

// fsm applies committed entries. Its methods are called by raft, one at a time.
type fsm struct {
	image    atomic.Pointer[meta.Image]
	onCommit func(*meta.Delta)

	mu   sync.Mutex
	live bool  // deltas are delivered; before that they are gathered into one
	err  error // an entry that cannot be read; nothing after it is applied
}

func newFSM(onCommit func(*meta.Delta)) *fsm {
	f := &fsm{onCommit: onCommit}
	if f.onCommit == nil {
		f.onCommit = func(*meta.Delta) {}
	}
	f.image.Store(meta.Empty())
	return f
}

func (f *fsm) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// goLive delivers what was restored as one delta and everything after it as it comes.
func (f *fsm) goLive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = true
	f.onCommit(meta.Diff(meta.Empty(), f.image.Load()))
}

// Apply implements raft.FSM. The result is an error or nil.
func (f *fsm) Apply(l *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	base, recs, err := decodeProposal(l.Data)
	if err != nil {
		f.err = fmt.Errorf("raft entry %d: %w", l.Index, err)
		return f.err
	}
	old := f.image.Load()
	if base > old.Offset() { // whoever made it had seen them
		f.err = fmt.Errorf("raft entry %d: the records before offset %d are not all there (%d are)", l.Index, base, old.Offset())
		return f.err
	}
	if base != old.Offset() {
		// The same on every node and at every replay.
		return fmt.Errorf("%w: made for offset %d, now at %d", ErrBase, base, old.Offset())
	}
	img, delta := old.Apply(recs)
	f.image.Store(img)
	if f.live {
		f.onCommit(delta)
	}
	return nil
}

var snapshotMagic = []byte("STETMETA\x01")

// Snapshot implements raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	return &imageSnapshot{f.image.Load()}, nil
}

// Restore implements raft.FSM.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	data, err := io.ReadAll(r)
	if err == nil {
		var recs []meta.Record
		rest, ok := bytes.CutPrefix(data, snapshotMagic)
		if !ok {
			err = fmt.Errorf("metadata snapshot: format is not known to this version of Stet")
		} else if recs, err = meta.Decode(rest); err == nil {
			f.install(recs)
			return nil
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	return err
}

func (f *fsm) install(recs []meta.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.image.Load()
	img, _ := meta.Empty().Apply(recs)
	f.image.Store(img)
	if f.live {
		f.onCommit(meta.Diff(old, img))
	}
}

type imageSnapshot struct{ img *meta.Image }

func (s *imageSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(meta.Encode(bytes.Clone(snapshotMagic), s.img.Records())); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

func (s *imageSnapshot) Release() {}

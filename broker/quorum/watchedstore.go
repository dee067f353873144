package quorum

import (
	"sync"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// watchedStore is the store of raft that remembers why the last write failed. Raft itself only logs that and steps down,
// and says to whoever proposed no more than that this node does not lead.
type watchedStore struct {
	*raftboltdb.BoltStore
	// fault, if set, fails writes; for tests.
	fault func() error

	mu  sync.Mutex
	err error
}

// failure is why the last write failed, nil if it did not.
func (s *watchedStore) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *watchedStore) write(f func() error) error {
	var err error
	if s.fault != nil {
		err = s.fault()
	}
	if err == nil {
		err = f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// StoreLog implements raft.LogStore.
func (s *watchedStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *watchedStore) StoreLogs(ls []*raft.Log) error {
	return s.write(func() error { return s.BoltStore.StoreLogs(ls) })
}

// Set implements raft.StableStore.
func (s *watchedStore) Set(k, v []byte) error {
	return s.write(func() error { return s.BoltStore.Set(k, v) })
}

// SetUint64 implements raft.StableStore.
func (s *watchedStore) SetUint64(k []byte, v uint64) error {
	return s.write(func() error { return s.BoltStore.SetUint64(k, v) })
}

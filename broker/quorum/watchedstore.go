package quorum

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// watchedStore is the store of raft that remembers why the last write failed. Raft itself only logs that and steps down,
// and says to whoever proposed no more than that this node does not lead.
//
// Raft panics when it cannot save its term. A term that cannot be saved is kept here instead, and every later write saves it first or
// fails: no vote is cast and no entry stored in a term that is not on the disk. So a node whose disk is full stands for election in vain
// until there is room.
type watchedStore struct {
	*raftboltdb.BoltStore
	dir string
	log *slog.Logger
	// fault, if set, fails writes; for tests.
	fault func() error

	writing sync.Mutex // held over a write; guards term
	term    uint64     // not saved yet; 0: none

	mu  sync.Mutex
	err error // why the last write failed; a term that fits in is no end of it, an entry of the log is
}

// termKey is raft's.
var termKey = []byte("CurrentTerm")

// failure is why the last write failed, nil if it did not.
func (s *watchedStore) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *watchedStore) write(entry bool, f func() error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.try(func() error {
		if s.term != 0 {
			if err := s.BoltStore.SetUint64(termKey, s.term); err != nil {
				return err
			}
			s.term = 0
		}
		return f()
	})
	s.mu.Lock()
	was := s.err
	if err != nil || entry {
		s.err = err
	}
	s.mu.Unlock()
	switch {
	case err != nil && was == nil:
		s.log.Error("metadata cannot be written; they are as they were until they can", "dir", s.dir, "err", err)
	case entry && err == nil && was != nil:
		s.log.Info("metadata can be written again", "dir", s.dir)
	}
	return err
}

func (s *watchedStore) try(f func() error) error {
	if s.fault != nil {
		if err := s.fault(); err != nil {
			return err
		}
	}
	return f()
}

// StoreLog implements raft.LogStore.
func (s *watchedStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *watchedStore) StoreLogs(ls []*raft.Log) error {
	with := make([]*raft.Log, len(ls))
	for i, l := range ls {
		with[i] = sealed(l)
	}
	return s.write(true, func() error { return s.BoltStore.StoreLogs(with) })
}

// GetLog implements raft.LogStore.
func (s *watchedStore) GetLog(index uint64, l *raft.Log) error {
	if err := s.BoltStore.GetLog(index, l); err != nil {
		return err
	}
	if err := checkSeal(index, l); err != nil {
		return errDamaged(filepath.Join(s.dir, storeFile), err)
	}
	return nil
}

// Set implements raft.StableStore.
func (s *watchedStore) Set(k, v []byte) error {
	return s.write(false, func() error { return s.BoltStore.Set(k, v) })
}

// SetUint64 implements raft.StableStore.
func (s *watchedStore) SetUint64(k []byte, v uint64) error {
	if !bytes.Equal(k, termKey) {
		return s.write(false, func() error { return s.BoltStore.SetUint64(k, v) })
	}
	s.writing.Lock()
	s.term = v
	s.writing.Unlock()
	_ = s.write(false, func() error { return nil })
	return nil
}

// GetUint64 implements raft.StableStore.
func (s *watchedStore) GetUint64(k []byte) (uint64, error) {
	if bytes.Equal(k, termKey) {
		s.writing.Lock()
		defer s.writing.Unlock()
		if s.term != 0 {
			return s.term, nil
		}
	}
	return s.BoltStore.GetUint64(k)
}

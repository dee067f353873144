package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// errDamaged wraps what is wrong with a file of the quorum, and says what helps.
func errDamaged(path string, err error) error {
	return fmt.Errorf("%s is damaged: %w; put back a copy of it (topics, mirrors and their settings are in it)", path, err)
}

// noPanic runs f, of a library that panics where a file is damaged.
func noPanic(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return f()
}

// checkStore looks at the whole of raft.db before it is used: bbolt itself finds damage only where it comes across it, by a
// panic or not at all, and with one of its two meta pages damaged it goes on silently with what was before the last write.
// A file that is missing, or that a crash in the very first start left empty or unfinished, is none.
func checkStore(path string, fresh bool) error {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && st.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	// Opened to be alone with it. Beyond the meta pages this reads nothing.
	options := *bbolt.DefaultOptions
	options.Timeout, options.ReadOnly = lockTimeout, true
	var db *bbolt.DB
	openErr := noPanic(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &options)
		return err
	})
	if openErr == nil {
		defer func() { _ = db.Close() }()
	}
	if isLocked(openErr) {
		return openErr
	}
	file, err := os.ReadFile(path) // not through the map: a read error there ends the process
	if err != nil {
		return err
	}
	if err := checkFile(file); err != nil {
		if fresh && (len(file) < initialPages*os.Getpagesize() || !slices.ContainsFunc(file, func(b byte) bool { return b != 0 })) {
			return os.Truncate(path, 0)
		}
		return errDamaged(path, err)
	}
	return openErr
}

// initialPages is how many bbolt writes, at once, before anything else.
const initialPages = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal is a checksum of an entry of raft's log. It travels as the entry's extension, which is for whoever stores it.
func seal(l *raft.Log) []byte {
	b := binary.BigEndian.AppendUint64(nil, l.Index)
	b = binary.BigEndian.AppendUint64(b, l.Term)
	b = append(b, byte(l.Type))
	return binary.BigEndian.AppendUint32(nil, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, l.Data))
}

// sealed is the entry with its seal.
func sealed(l *raft.Log) *raft.Log {
	with := *l
	with.Extensions = seal(l)
	return &with
}

// checkSeal says whether the entry at index is as it was stored. One without a seal is of a version before there were any.
func checkSeal(index uint64, l *raft.Log) error {
	if l.Index != index {
		return fmt.Errorf("entry %d of the metadata log is marked %d", index, l.Index)
	}
	if len(l.Extensions) > 0 && string(l.Extensions) != string(seal(l)) {
		return fmt.Errorf("entry %d of the metadata log has a wrong checksum", index)
	}
	return nil
}

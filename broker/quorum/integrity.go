package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"

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
// A file that is missing or empty, as a crash in the very first start may leave it, is none.
func checkStore(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	if _, err := io.Copy(io.Discard, f); err != nil { // bbolt maps it, and a read error there ends the process
		return err
	}
	if err := checkMetaPages(f, st.Size()); err != nil {
		return errDamaged(path, err)
	}
	err = noPanic(func() error {
		options := *bbolt.DefaultOptions
		options.Timeout, options.ReadOnly = lockTimeout, true
		db, err := bbolt.Open(path, 0o600, &options)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		return db.View(func(tx *bbolt.Tx) error {
			var first error
			for err := range tx.Check() { // to the end: its goroutine waits for a reader
				if first == nil {
					first = err
				}
			}
			return first
		})
	})
	if err != nil && !isLocked(err) {
		return errDamaged(path, err)
	}
	return err
}

// The meta pages of bbolt (file format 2): a page header, magic, version, page size, flags, root, free list, the number of pages, transaction
// and a checksum of all that.
const (
	metaHeader   = 16
	metaSize     = 64
	metaMagic    = 0xED0CDAED
	maxPageBits  = 16
	minPageBits  = 9
	metaPageSize = 8
	metaPages    = 40
)

func checkMetaPages(f io.ReaderAt, size int64) error {
	page := func(at int64) (pageSize, pages int64, ok bool) {
		b := make([]byte, metaSize)
		if _, err := f.ReadAt(b, at+metaHeader); err != nil {
			return 0, 0, false
		}
		sum := fnv.New64a()
		sum.Write(b[:metaSize-8])
		ok = binary.NativeEndian.Uint32(b) == metaMagic && binary.NativeEndian.Uint64(b[metaSize-8:]) == sum.Sum64()
		return int64(binary.NativeEndian.Uint32(b[metaPageSize:])), int64(binary.NativeEndian.Uint64(b[metaPages:])), ok
	}
	first, pages, ok := page(0)
	if !ok {
		for bits := minPageBits; bits <= maxPageBits; bits++ {
			if _, _, ok := page(1 << bits); ok {
				return errors.New("the first of its two meta pages is not what was written, so the last change may be missing (`bbolt surgery revert-meta-page` accepts the state before it)")
			}
		}
		return errors.New("it has no meta page")
	}
	_, others, ok := page(first)
	if !ok {
		return errors.New("the second of its two meta pages is not what was written, so the last change may be missing (`bbolt surgery revert-meta-page` accepts the state before it)")
	}
	if need := max(pages, others) * first; size < need {
		return fmt.Errorf("it has %d bytes, %d were written", size, need)
	}
	return nil
}

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

package rawloop

import (
	"fmt"

	"golang.org/x/sys/unix"

	"stet/zerocopy/batch"
)

// Write says how bytes get into the files. The zero value is one write per partition and response, after all its
// batches were checked.
type Write struct {
	// Piece is how many bytes are checked before they are written, so that the write finds them in the cache; 0: all.
	Piece int
	// Allocate reserves file space in steps of so many bytes (fallocate, keeping the size); 0: none.
	Allocate int64
	// Uncached writes with RWF_DONTCACHE (Linux 6.14).
	Uncached bool
}

// rwfDontCache is RWF_DONTCACHE.
const rwfDontCache = 0x80

// store checks the batches of one partition and writes them.
func (r *receiver) store(p *partition) error {
	from := 0
	for at := 0; at < len(p.records); {
		b, _, err := batch.Next(p.records[at:])
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return fmt.Errorf("partition %d: %w", p.id, err)
		}
		at += len(b)
		if at == len(p.records) || r.o.Write.Piece > 0 && at-from >= r.o.Write.Piece {
			if err := r.write1(p, p.records[from:at]); err != nil {
				return err
			}
			from = at
		}
	}
	p.records = nil
	return nil
}

func (r *receiver) write1(p *partition, b []byte) error {
	if p.file == nil || len(b) == 0 {
		return nil
	}
	w, fd := r.o.Write, int(p.file.Fd())
	if end := p.pos + int64(len(b)); w.Allocate > 0 && end > p.reserved {
		n := max(w.Allocate, int64(len(b)))
		if err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, p.reserved, n); err != nil {
			return fmt.Errorf("fallocate: %w", err)
		}
		p.reserved += n
	}
	r.res.Writes++
	for len(b) > 0 {
		var n int
		var err error
		if w.Uncached {
			n, err = unix.Pwritev2(fd, [][]byte{b}, p.pos, rwfDontCache)
		} else {
			n, err = p.file.WriteAt(b, p.pos)
		}
		if err != nil {
			return err
		}
		p.pos += int64(n)
		b = b[n:]
	}
	return nil
}

package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
)

// The file format of bbolt, version 2. A page begins with its number (8 bytes), flags (2), the number of its elements (2) and of the
// pages that belong to it besides (4). A meta page goes on with magic, version, page size, flags, root page, free list page, number of pages, transaction, and a
// checksum of all that.
const (
	pageHeader  = 16
	metaSize    = 64
	metaMagic   = 0xED0CDAED
	minPageBits = 9
	maxPageBits = 16

	branchPage   = 1
	leafPage     = 2
	freeListPage = 16
	elementSize  = 16
	bucketHeader = 16
	bucketLeaf   = 1
)

var (
	u16 = binary.NativeEndian.Uint16
	u32 = binary.NativeEndian.Uint32
	u64 = binary.NativeEndian.Uint64
)

type metaPage struct {
	pageSize, root, free, pages, txn uint64
}

func metaAt(file []byte, at int) (m metaPage, ok bool) {
	if len(file) < at+pageHeader+metaSize {
		return m, false
	}
	b := file[at+pageHeader : at+pageHeader+metaSize]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	m = metaPage{uint64(u32(b[8:])), u64(b[16:]), u64(b[32:]), u64(b[40:]), u64(b[48:])}
	return m, u32(b) == metaMagic && u64(b[56:]) == sum.Sum64()
}

// checkFile looks at every page of a bbolt file that its newer meta page reaches, in memory: bbolt's own check follows what it reads, and a wrong
// position ends the process.
func checkFile(file []byte) error {
	const missing = "of its two meta pages is not what was written, so the last change may be missing"
	m, ok := metaAt(file, 0)
	if !ok {
		for bits := minPageBits; bits <= maxPageBits; bits++ {
			if _, ok := metaAt(file, 1<<bits); ok {
				return errors.New("the first " + missing)
			}
		}
		return errors.New("it has no meta page")
	}
	other, ok := metaAt(file, int(m.pageSize))
	if !ok || other.pageSize != m.pageSize {
		return errors.New("the second " + missing)
	}
	if need := max(m.pages, other.pages) * m.pageSize; uint64(len(file)) < need {
		return fmt.Errorf("it has %d bytes, %d were written", len(file), need)
	}
	if other.txn > m.txn {
		m = other
	}
	c := checker{file: file, size: m.pageSize, used: make([]bool, m.pages)}
	c.used[0], c.used[1] = true, true
	if err := c.tree(m.root, nil); err != nil {
		return err
	}
	return c.freeList(m.free)
}

// checker notes the pages that it came by.
type checker struct {
	file []byte
	size uint64
	used []bool
}

// page is a page with those that belong to it; each is reached once.
func (c *checker) page(id uint64) (p []byte, flags uint16, count int, err error) {
	if id < 2 || id >= uint64(len(c.used)) {
		return nil, 0, 0, fmt.Errorf("page %d of %d", id, len(c.used))
	}
	p = c.file[id*c.size:]
	more := uint64(u32(p[12:]))
	if u64(p) != id || id+more >= uint64(len(c.used)) {
		return nil, 0, 0, fmt.Errorf("page %d is marked %d, with %d more", id, u64(p), more)
	}
	for i := id; i <= id+more; i++ {
		if c.used[i] {
			return nil, 0, 0, fmt.Errorf("page %d is used twice", i)
		}
		c.used[i] = true
	}
	return p[:(more+1)*c.size], u16(p[8:]), int(u16(p[10:])), nil
}

// keys checks bounds and order of keys. least is what the page above says of the first one.
type keys struct {
	page        uint64
	least, last []byte
}

func (k *keys) next(p []byte, i, count int, from, key, value uint64) error {
	if from < uint64(pageHeader+elementSize*count) || from+key+value > uint64(len(p)) {
		return fmt.Errorf("page %d, element %d is outside", k.page, i)
	}
	name := p[from : from+key]
	if i > 0 && bytes.Compare(k.last, name) >= 0 || i == 0 && bytes.Compare(k.least, name) > 0 {
		return fmt.Errorf("page %d, element %d is out of order", k.page, i)
	}
	k.last = name
	return nil
}

func (c *checker) tree(id uint64, least []byte) error {
	p, flags, count, err := c.page(id)
	if err != nil {
		return err
	}
	if pageHeader+elementSize*count > len(p) {
		return fmt.Errorf("page %d has %d elements", id, count)
	}
	k := keys{page: id, least: least}
	switch flags {
	case leafPage:
		return c.leaf(p, count, k)
	case branchPage:
		if count == 0 {
			return fmt.Errorf("page %d is empty", id)
		}
	default:
		return fmt.Errorf("page %d has flags %x", id, flags)
	}
	for i := range count {
		at := pageHeader + elementSize*i
		if err := k.next(p, i, count, uint64(at)+uint64(u32(p[at:])), uint64(u32(p[at+4:])), 0); err != nil {
			return err
		}
		if err := c.tree(u64(p[at+8:]), k.last); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) leaf(p []byte, count int, k keys) error {
	for i := range count {
		at := pageHeader + elementSize*i
		flags, from, key, value := u32(p[at:]), uint64(at)+uint64(u32(p[at+4:])), uint64(u32(p[at+8:])), uint64(u32(p[at+12:]))
		if err := k.next(p, i, count, from, key, value); err != nil {
			return err
		}
		switch flags {
		case 0:
		case bucketLeaf:
			if err := c.bucket(p[from+key:from+key+value], k.page); err != nil {
				return fmt.Errorf("page %d, element %d: %w", k.page, i, err)
			}
		default:
			return fmt.Errorf("page %d, element %d has flags %x", k.page, i, flags)
		}
	}
	return nil
}

// bucket is the number of its root page, or a leaf in place.
func (c *checker) bucket(b []byte, where uint64) error {
	if len(b) < bucketHeader {
		return errors.New("it is no bucket")
	}
	if root := u64(b); root != 0 {
		return c.tree(root, nil)
	}
	p := b[bucketHeader:]
	if len(p) < pageHeader || u16(p[8:]) != leafPage || pageHeader+elementSize*int(u16(p[10:])) > len(p) {
		return errors.New("it is no bucket")
	}
	return c.leaf(p, int(u16(p[10:])), keys{page: where})
}

// freeList is of all pages that are not used.
func (c *checker) freeList(id uint64) error {
	p, flags, count, err := c.page(id)
	if err != nil {
		return err
	}
	ids, n := p[pageHeader:], uint64(count)
	if count == 0xFFFF { // more than fit the field: the first one is the number
		n, ids = u64(ids), ids[8:]
	}
	if flags != freeListPage || n > uint64(len(ids)/8) {
		return fmt.Errorf("page %d is no free list", id)
	}
	for i := range n {
		free := u64(ids[8*i:])
		if free >= uint64(len(c.used)) || c.used[free] {
			return fmt.Errorf("page %d is free and used", free)
		}
		c.used[free] = true
	}
	if i := slices.Index(c.used, false); i >= 0 {
		return fmt.Errorf("page %d is neither used nor free", i)
	}
	return nil
}

package verify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"stet/zerocopy/batch"
)

// Dirs compares all partitions of two log directories whose topic matches.
func Dirs(source, destination string, match func(topic string) bool) (*Report, error) {
	src, err := partitionDirs(source, match)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	dst, err := partitionDirs(destination, match)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	r := &Report{}
	for _, tp := range sortedKeys(src, dst) {
		p := Partition{Topic: tp.topic, Partition: tp.partition}
		if src[tp] == "" || dst[tp] == "" {
			side := "source"
			if src[tp] == "" {
				side = "destination"
			}
			p.Difference = &Difference{Byte: -1, Text: "only the " + side + " has this partition"}
			r.Partitions = append(r.Partitions, p)
			continue
		}
		if err := compareDirs(&p, src[tp], dst[tp]); err != nil {
			return nil, fmt.Errorf("%s-%d: %w", tp.topic, tp.partition, err)
		}
		r.Partitions = append(r.Partitions, p)
	}
	if len(r.Partitions) == 0 {
		return nil, errors.New("no partition directory matches on either side")
	}
	return r.finish(), nil
}

type topicPartition struct {
	topic     string
	partition int32
}

func sortedKeys(ms ...map[topicPartition]string) []topicPartition {
	seen := map[topicPartition]bool{}
	var keys []topicPartition
	for _, m := range ms {
		for k := range m {
			if !seen[k] {
				seen[k] = true
				keys = append(keys, k)
			}
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		if keys[i].topic != keys[j].topic {
			return keys[i].topic < keys[j].topic
		}
		return keys[i].partition < keys[j].partition
	})
	return keys
}

var dirName = regexp.MustCompile(`^(.+)-(\d+)$`)

func partitionDirs(dir string, match func(string) bool) (map[topicPartition]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[topicPartition]string{}
	for _, e := range entries {
		m := dirName.FindStringSubmatch(e.Name())
		if !e.IsDir() || m == nil || !match(m[1]) {
			continue
		}
		n, err := strconv.ParseInt(m[2], 10, 32)
		if err != nil {
			continue
		}
		found[topicPartition{m[1], int32(n)}] = filepath.Join(dir, e.Name())
	}
	return found, nil
}

func compareDirs(p *Partition, src, dst string) error {
	var err error
	if p.Source, err = dirRange(src); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if p.Destination, err = dirRange(dst); err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	p.From, p.To = max(p.Source.Start, p.Destination.Start), min(p.Source.End, p.Destination.End)
	if p.To <= p.From {
		p.To = p.From
		return nil
	}
	a, err := OpenDir(src)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := OpenDir(dst)
	if err != nil {
		return err
	}
	defer b.Close()
	return compare(p, a, b)
}

func dirRange(dir string) (Range, error) {
	s, err := OpenDir(dir)
	if err != nil {
		return Range{}, err
	}
	defer s.Close()
	r := Range{Start: -1}
	for {
		b, err := s.Next()
		if errors.Is(err, io.EOF) {
			if r.Start < 0 {
				return Range{}, nil
			}
			return r, nil
		}
		if err != nil {
			return r, err
		}
		if r.Start < 0 {
			r.Start = b.BaseOffset()
		}
		r.End = b.NextOffset()
	}
}

// DirStream reads the segment files of one partition in order of base offset.
type DirStream struct {
	files []string
	cur   *os.File
	size  int64
	pos   int64
	buf   []byte
}

// OpenDir opens a partition directory. Zero bytes at the end of a segment (preallocation) end it.
func OpenDir(dir string) (*DirStream, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no segment files", dir)
	}
	sort.Slice(files, func(i, j int) bool { return strings.Compare(files[i], files[j]) < 0 })
	return &DirStream{files: files}, nil
}

// Close closes the open file.
func (s *DirStream) Close() {
	if s.cur != nil {
		s.cur.Close()
	}
}

// Next implements Stream. The CRC of every batch is checked.
func (s *DirStream) Next() (batch.Batch, error) {
	var head [batch.LogOverhead]byte
	for {
		if s.cur == nil {
			if len(s.files) == 0 {
				return nil, io.EOF
			}
			f, err := os.Open(s.files[0])
			if err != nil {
				return nil, err
			}
			st, err := f.Stat()
			if err != nil {
				f.Close()
				return nil, err
			}
			s.files, s.cur, s.size, s.pos = s.files[1:], f, st.Size(), 0
		}
		if s.size-s.pos >= batch.LogOverhead {
			if _, err := s.cur.ReadAt(head[:], s.pos); err != nil {
				return nil, err
			}
			if binary.BigEndian.Uint32(head[8:]) != 0 {
				break
			}
		}
		s.cur.Close()
		s.cur = nil
	}
	n := batch.SizeOf(head[:])
	if n < batch.HeaderSize || n > s.size-s.pos {
		return nil, fmt.Errorf("%s: position %d: a batch of %d bytes in %d", s.cur.Name(), s.pos, n, s.size-s.pos)
	}
	if int64(cap(s.buf)) < n {
		s.buf = make([]byte, n)
	}
	b := s.buf[:n]
	if _, err := s.cur.ReadAt(b, s.pos); err != nil {
		return nil, err
	}
	x, _, err := batch.Next(b)
	if err != nil {
		return nil, fmt.Errorf("%s: position %d: %w", s.cur.Name(), s.pos, err)
	}
	s.pos += n
	return x, nil
}

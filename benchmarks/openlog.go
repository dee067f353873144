package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"stet/broker/log"
)

// opened is what opening (and compacting) a data folder took.
type opened struct {
	Logs    int
	Bytes   int64 // of all .log files before
	Open    time.Duration
	Compact time.Duration
	Left    int64 // bytes after the compaction
}

// openCommand opens a data folder with our log, and compacts what is to be compacted.
func openCommand(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("openlog", flag.ContinueOnError)
	dir := fs.String("dir", "", "data folder")
	compact := fs.String("compact", "", "topic to compact; empty: none")
	segment := fs.Int("segment-bytes", 64<<20, "segment.bytes of that topic")
	if err := fs.Parse(args); err != nil {
		return err
	}
	out := opened{Bytes: logBytes(*dir, "*")}
	start := time.Now()
	m, err := log.OpenManager(log.ManagerOptions{Dirs: []string{*dir}, NodeID: 1}, func(topic string) log.Config {
		cfg := log.DefaultConfig()
		if topic == *compact {
			cfg.CleanupPolicy, cfg.SegmentBytes, cfg.MinCleanableRatio = "compact", int32(*segment), 0.01
		}
		return cfg
	})
	if err != nil {
		return err
	}
	out.Open = time.Since(start)
	for _, l := range m.Logs() {
		if err := l.Err(); err != nil {
			return fmt.Errorf("%s-%d: %w", l.Topic(), l.Partition(), err)
		}
		out.Logs++
		l.SetHighWatermark(l.LogEndOffset())
	}
	if *compact != "" {
		start = time.Now()
		for m.CompactOnce(ctx) {
		}
		out.Compact = time.Since(start)
		out.Left = logBytes(*dir, *compact)
	}
	if err := m.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func (b *bench) openLog(ctx context.Context, dir string, args ...string) (o opened, err error) {
	out, err := b.child(ctx, append([]string{"openlog", "--dir", dir}, args...)...)
	if err != nil {
		return o, err
	}
	return o, decode(out, &o)
}

// scanCommand is the baseline of recovery: the files read through, with a CRC over every byte, by two threads.
func scanCommand(args []string) error {
	fs := flag.NewFlagSet("scan", flag.ContinueOnError)
	dir := fs.String("dir", "", "data folder")
	threads := fs.Int("threads", 2, "files at a time")
	if err := fs.Parse(args); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(*dir, "*-*", "*.log"))
	if err != nil {
		return err
	}
	work := make(chan string)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs error
	var u usage
	start := time.Now()
	for range *threads {
		wg.Go(func() {
			for f := range work {
				n, err := scanFile(f)
				mu.Lock()
				u.Bytes, errs = u.Bytes+n, errors.Join(errs, err)
				mu.Unlock()
			}
		})
	}
	for _, f := range files {
		work <- f
	}
	close(work)
	wg.Wait()
	if errs != nil {
		return errs
	}
	u.Took = time.Since(start)
	return json.NewEncoder(os.Stdout).Encode(u)
}

// scanFile reads a log file batch by batch, as far as its length fields go, and computes their CRCs.
func scanFile(name string) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	table := crc32.MakeTable(crc32.Castagnoli)
	buf := make([]byte, 1<<20)
	var total int64
	have := 0
	for {
		n, err := f.Read(buf[have:])
		total += int64(n)
		have += n
		at := 0
		for have-at >= 21 {
			size := 12 + int(binary.BigEndian.Uint32(buf[at+8:]))
			if size > len(buf) {
				grown := make([]byte, size)
				copy(grown, buf[at:have])
				buf, have, at = grown, have-at, 0
				break
			}
			if size > have-at {
				break
			}
			if crc32.Checksum(buf[at+21:at+size], table) != binary.BigEndian.Uint32(buf[at+17:]) {
				return total, fmt.Errorf("%s: the CRC at %d does not fit", name, total-int64(have-at))
			}
			at += size
		}
		have = copy(buf, buf[at:have])
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

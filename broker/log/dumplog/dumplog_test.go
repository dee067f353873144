package dumplog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stet/broker/log"
	"stet/internal/clock"
	"stet/zerocopy/batch"
)

const ts = 1796005735411

// partition makes a log with data, transactions and a reset record, in two segments.
func partition(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cfg := log.DefaultConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes = 560, 100
	m, err := log.OpenManager(log.ManagerOptions{Dirs: []string{dir}, NodeID: 1, Clock: clock.NewManual(time.UnixMilli(ts))}, func(string) log.Config { return cfg })
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.Create("t", 0, [16]byte{1}, 1, cfg)
	if err != nil {
		t.Fatal(err)
	}
	add := func(b []byte, o log.Origin) {
		t.Helper()
		if _, err := l.AppendAsLeader(b, 3, o); err != nil {
			t.Fatal(err)
		}
	}
	h := batch.Header{Timestamp: ts, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	add(batch.Build(nil, h, batch.KV{Key: []byte("k"), Value: []byte("v")}, batch.KV{Value: []byte{}}, batch.KV{Key: []byte("é\xff")}), log.OriginClient)
	x := batch.Header{Timestamp: ts + 1, ProducerID: 5, ProducerEpoch: 1, BaseSequence: 7, Attributes: batch.AttrTransactional}
	add(batch.Build(nil, x, batch.KV{Value: []byte("t5-0")}), log.OriginClient)
	x.ProducerID = 6
	add(batch.Build(nil, x, batch.KV{Value: []byte("t6-0")}), log.OriginClient)
	x.ProducerID = 5
	add(batch.BuildEndTxn(nil, x, true, 2), log.OriginCoordinator)
	x.ProducerID = 6
	add(batch.BuildEndTxn(nil, x, false, 4), log.OriginCoordinator)
	h.Attributes = batch.AttrControl
	add(batch.Build(nil, h, batch.KV{Key: []byte{0, 0, 0, 7}, Value: []byte{0, 0, 1, 0}}), log.OriginInternal)
	h.Attributes = 0
	add(batch.Build(nil, h, batch.KV{Value: bytes.Repeat([]byte("z"), 90)}), log.OriginClient)
	x.ProducerID, x.BaseSequence, x.Timestamp = 9, 0, ts+9
	add(batch.Build(nil, x, batch.KV{Value: []byte("open")}, batch.KV{Value: []byte("open")}), log.OriginClient)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "t-0")
}

// run dumps files; paths and checksums are replaced, so that the text is fixed.
func run(t *testing.T, dir string, o Options, names ...string) (out, errs string, err error) {
	t.Helper()
	var a, b bytes.Buffer
	files := make([]string, len(names))
	for i, n := range names {
		files[i] = filepath.Join(dir, n)
	}
	err = Run(&a, &b, files, o)
	return strings.ReplaceAll(a.String(), dir, "DIR"), strings.ReplaceAll(b.String(), dir, "DIR"), err
}

const zero = "00000000000000000000"

// The lines are those of Apache Kafka 4.3.1's tool for the same batches.
func TestDataLog(t *testing.T) {
	dir := partition(t)
	out, errs, err := run(t, dir, Options{PrintDataLog: true}, zero+".log")
	if err != nil || errs != "" {
		t.Fatal(err, errs)
	}
	crcs := map[int]uint32{}
	raw, err := os.ReadFile(filepath.Join(dir, zero+".log"))
	if err != nil {
		t.Fatal(err)
	}
	for rest, i := raw, 0; len(rest) > 0; i++ {
		b, r, err := batch.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		crcs[i], rest = b.CRC(), r
	}
	want := fmt.Sprintf(`Dumping DIR/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1796005735411 size: 87 magic: 2 compresscodec: none crc: %d isvalid: true
| offset: 0 CreateTime: 1796005735411 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] key: k payload: v
| offset: 1 CreateTime: 1796005735411 keySize: -1 valueSize: 0 sequence: -1 headerKeys: [] payload: `+`
| offset: 2 CreateTime: 1796005735411 keySize: 3 valueSize: -1 sequence: -1 headerKeys: [] key: é�
baseOffset: 3 lastOffset: 3 count: 1 baseSequence: 7 lastSequence: 7 producerId: 5 producerEpoch: 1 partitionLeaderEpoch: 3 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 87 CreateTime: 1796005735412 size: 72 magic: 2 compresscodec: none crc: %d isvalid: true
| offset: 3 CreateTime: 1796005735412 keySize: -1 valueSize: 4 sequence: 7 headerKeys: [] payload: t5-0
baseOffset: 4 lastOffset: 4 count: 1 baseSequence: 7 lastSequence: 7 producerId: 6 producerEpoch: 1 partitionLeaderEpoch: 3 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 159 CreateTime: 1796005735412 size: 72 magic: 2 compresscodec: none crc: %d isvalid: true
| offset: 4 CreateTime: 1796005735412 keySize: -1 valueSize: 4 sequence: 7 headerKeys: [] payload: t6-0
baseOffset: 5 lastOffset: 5 count: 1 baseSequence: -1 lastSequence: -1 producerId: 5 producerEpoch: 1 partitionLeaderEpoch: 3 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty position: 231 CreateTime: 1796005735412 size: 78 magic: 2 compresscodec: none crc: %d isvalid: true
| offset: 5 CreateTime: 1796005735412 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 2
baseOffset: 6 lastOffset: 6 count: 1 baseSequence: -1 lastSequence: -1 producerId: 6 producerEpoch: 1 partitionLeaderEpoch: 3 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty position: 309 CreateTime: 1796005735412 size: 78 magic: 2 compresscodec: none crc: %d isvalid: true
| offset: 6 CreateTime: 1796005735412 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 4
baseOffset: 7 lastOffset: 7 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: true deleteHorizonMs: OptionalLong.empty position: 387 CreateTime: 1796005735411 size: 76 magic: 2 compresscodec: none crc: %d isvalid: true
| offset: 7 CreateTime: 1796005735411 keySize: 4 valueSize: 4 sequence: -1 headerKeys: [] controlType: UNKNOWN(7)
`, crcs[0], crcs[1], crcs[2], crcs[3], crcs[4], crcs[5])
	if out != want {
		t.Fatalf("got\n%s\nwant\n%s", out, want)
	}
	shallow, _, err := run(t, dir, Options{}, zero+".log")
	if err != nil || strings.Contains(shallow, "| offset") || strings.Count(shallow, "baseOffset:") != 6 {
		t.Fatalf("%v\n%s", err, shallow)
	}
	deep, _, err := run(t, dir, Options{DeepIteration: true}, zero+".log")
	if err != nil || strings.Contains(deep, "payload") || strings.Count(deep, "| offset") != 8 {
		t.Fatalf("%v\n%s", err, deep)
	}
	skip, _, err := run(t, dir, Options{PrintDataLog: true, SkipRecordMetadata: true}, zero+".log")
	if err != nil || !strings.Contains(skip, "| key: k payload: v\n") || strings.Contains(skip, "endTxnMarker") {
		t.Fatalf("%v\n%s", err, skip)
	}
	dec, _, err := run(t, dir, Options{Decoder: func(_ int64, k, v []byte) (string, string) {
		return fmt.Sprintf("<%s>", k), map[bool]string{true: "", false: fmt.Sprintf("<%s>", v)}[v == nil]
	}}, zero+".log")
	if err != nil || !strings.Contains(dec, "key: <k> payload: <v>\n") || !strings.Contains(dec, "headerKeys: [] key: <é\xff>\n") {
		t.Fatalf("%v\n%s", err, dec)
	}
}

func TestIndexesAndSnapshots(t *testing.T) {
	dir := partition(t)
	const second = "00000000000000000008"
	out, errs, err := run(t, dir, Options{}, zero+".index", zero+".timeindex", zero+".txnindex", second+".snapshot", "00000000000000000011.snapshot")
	want := `Dumping DIR/00000000000000000000.index
offset: 4 position: 159
offset: 6 position: 309
Dumping DIR/00000000000000000000.timeindex
timestamp: 1796005735412 offset: 3
Dumping DIR/00000000000000000000.txnindex
version: 0 producerId: 6 firstOffset: 4 lastOffset: 6 lastStableOffset: 7
Dumping DIR/00000000000000000008.snapshot
Dumping DIR/00000000000000000011.snapshot
producerId: 9 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[9] lastTimestamp: 1796005735420 firstSequence: 0 lastSequence: 1 lastOffset: 10 offsetDelta: 1 timestamp: 1796005735420
`
	if err != nil || out != want || errs != "" {
		t.Fatalf("%v\n%s\nwant\n%s\n%s", err, out, want, errs)
	}
	out, _, err = run(t, dir, Options{IndexSanityCheck: true}, zero+".index", zero+".timeindex")
	if err != nil || strings.Count(out, "passed sanity check.") != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	out, errs, err = run(t, dir, Options{VerifyIndexOnly: true}, zero+".index", zero+".timeindex", second+".index", second+".timeindex")
	if err != nil || errs != "" || strings.Contains(out, "position") || strings.Contains(out, "timestamp:") {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
}

func TestBadFiles(t *testing.T) {
	dir := partition(t)
	raw, err := os.ReadFile(filepath.Join(dir, zero+".log"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, p []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const x = "00000000000000000100"
	write(x+".log", append(bytes.Clone(raw), 1, 2, 3))
	out, _, err := run(t, dir, Options{}, x+".log")
	if !errors.Is(err, ErrBad) || !strings.HasSuffix(out, "Found 3 invalid bytes at the end of "+x+".log\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	flipped := bytes.Clone(raw)
	flipped[80] ^= 1
	write(x+".log", flipped)
	if out, _, _ = run(t, dir, Options{}, x+".log"); !strings.Contains(out, "isvalid: false") {
		t.Fatal(out)
	}
	huge := bytes.Clone(raw)
	binary.BigEndian.PutUint32(huge[8:], 0x7fffffff)
	write(x+".log", huge)
	if out, _, err = run(t, dir, Options{}, x+".log"); !errors.Is(err, ErrBad) || !strings.Contains(out, fmt.Sprintf("Found %d invalid bytes", len(raw))) {
		t.Fatalf("%v\n%s", err, out)
	}
	// An index that points elsewhere.
	write(zero+".index", []byte{0, 0, 0, 4, 0, 0, 0, 87})
	write(zero+".timeindex", append(binary.BigEndian.AppendUint64(nil, 77), 0, 0, 0, 3))
	out, errs, err := run(t, dir, Options{}, zero+".index", zero+".timeindex")
	if !errors.Is(err, ErrBad) || !strings.Contains(errs, "Index offset: 4, log offset: 3") || !strings.Contains(errs, "Index timestamp: 77, log timestamp: 1796005735412") {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	for name, p := range map[string][]byte{"1.index": {1}, "1.timeindex": {1}, "1.txnindex": {1}, "1.snapshot": {1}, "x.log": nil} {
		write(name, p)
		if _, _, err := run(t, dir, Options{}, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A file that is not there does not keep the others from being printed.
	out, _, err = run(t, dir, Options{}, "00000000000000000999.log", zero+".log")
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(out, "baseOffset: 0 ") {
		t.Fatalf("%v\n%s", err, out)
	}
	gap := batch.Batch(bytes.Clone(raw))
	second := int(batch.SizeOf(gap))
	gap[second:].SetBaseOffset(20)
	write(x+".log", gap)
	if _, errs, _ = run(t, dir, Options{DeepIteration: true}, x+".log"); !strings.Contains(errs, "  2 is followed by 20\n") {
		t.Fatal(errs)
	}
	if out, _, _ = run(t, dir, Options{MaxBytes: 100}, x+".log"); strings.Count(out, "baseOffset") != 1 || strings.Contains(out, "invalid") {
		t.Fatal(out)
	}
}

package dumplog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stet/zerocopy/batch"
)

// dataBatch is a batch of n records.
func dataBatch(base int64, n int) []byte {
	h := batch.Header{BaseOffset: base, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Timestamp: ts + base}
	kvs := make([]batch.KV, n)
	for i := range kvs {
		kvs[i].Value = []byte("v")
	}
	return batch.Build(nil, h, kvs...)
}

// TestWholePartition: what is and is not a finding when a directory is looked at as a whole.
func TestWholePartition(t *testing.T) {
	contiguous := bytes.Join([][]byte{dataBatch(0, 2), dataBatch(2, 1), dataBatch(3, 3)}, nil)
	oneHole := bytes.Join([][]byte{dataBatch(0, 2), dataBatch(2, 1), dataBatch(4, 3)}, nil)
	holes := bytes.Join([][]byte{dataBatch(0, 2), dataBatch(3, 1), dataBatch(5, 3)}, nil)
	index := []byte{0, 0, 0, 2, 0, 0, 0, byte(len(dataBatch(0, 2)))}
	const log0, index0, time0 = "p/t-0/" + zero + ".log", "p/t-0/" + zero + ".index", "p/t-0/" + zero + ".timeindex"
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string // "": nothing is bad
		notes string
	}{
		"nothing but the log": {map[string][]byte{log0: contiguous}, "", ""},
		"indexes":             {map[string][]byte{log0: contiguous, index0: index, time0: nil}, "", ""},
		"preallocated":        {map[string][]byte{log0: contiguous, index0: append(bytes.Clone(index), make([]byte, 80)...), time0: make([]byte, 120)}, "", ""},
		"preallocated, empty": {map[string][]byte{log0: contiguous, index0: make([]byte, 80), time0: make([]byte, 120)}, "", ""},
		"a bit in the unused room": {
			map[string][]byte{log0: contiguous, index0: append(append(bytes.Clone(index), make([]byte, 76)...), 0, 0, 0, 4)},
			zero + ".index is bad at position 8, entry 1: an entry of the base offset", "",
		},
		"a hole": {map[string][]byte{log0: oneHole, "p/meta.properties": nil}, zero + ".log is bad at position 146, offset 4: offsets 3 to 3 are missing", ""},
		"a hole that the cleaner made": {
			map[string][]byte{log0: oneHole, "p/cleaner-offset-checkpoint": []byte("0\n1\nt 0 7\n")}, "", "",
		},
		"a hole in a copy of a partition": {map[string][]byte{log0: oneHole}, "", "offsets 3 to 3 are not there"},
		"holes of a compacted source":     {map[string][]byte{log0: holes, "p/meta.properties": nil}, "", "offsets 2 to 2 are not there"},
		"an index of no log":              {map[string][]byte{log0: contiguous, "p/t-0/00000000000000000003.index": nil}, "there is no 00000000000000000003.log", ""},
		"an index that is missing": {
			map[string][]byte{log0: contiguous, "p/t-0/00000000000000000006.log": dataBatch(6, 1), time0: nil}, zero + ".index is bad: it is missing", "",
		},
		"segments that overlap": {
			map[string][]byte{log0: contiguous, index0: nil, time0: nil, "p/t-0/00000000000000000005.log": dataBatch(5, 1)},
			"it ends with offset 5, which is the next segment's (5)", "",
		},
		"a snapshot beyond the end":   {map[string][]byte{log0: contiguous, "p/t-0/00000000000000000009.snapshot": emptySnapshot()}, "it is of offset 9, the log ends at 6", ""},
		"an epoch beyond the end":     {map[string][]byte{log0: contiguous, "p/t-0/leader-epoch-checkpoint": []byte("0\n2\n0 0\n3 9\n")}, "leader-epoch-checkpoint is bad at offset 9, entry 1", ""},
		"an epoch without batches":    {map[string][]byte{log0: contiguous, "p/t-0/leader-epoch-checkpoint": []byte("0\n2\n0 0\n3 6\n")}, "", ""},
		"an epoch's line not written": {map[string][]byte{log0: withEpoch(contiguous, 146, 7), "p/t-0/leader-epoch-checkpoint": []byte("0\n1\n0 0\n")}, "", ""},
		"the same after a clean stop": {
			map[string][]byte{log0: withEpoch(contiguous, 146, 7), "p/t-0/leader-epoch-checkpoint": []byte("0\n1\n0 0\n"), index0: nil, time0: nil, "p/.kafka_cleanshutdown": nil},
			"leader epoch 7; the batches before it and leader-epoch-checkpoint say 0", "",
		},
		"a checkpoint beyond":        {map[string][]byte{log0: contiguous, "p/replication-offset-checkpoint": []byte("0\n1\nt 0 7\n")}, "t-0: offset 7 is above the end of the log, 6", ""},
		"a checkpoint of nothing":    {map[string][]byte{log0: contiguous, "p/replication-offset-checkpoint": []byte("0\n1\nx 0 7\n")}, "x-0: there is no such partition", ""},
		"a clean stop, and not all":  {map[string][]byte{log0: contiguous, index0: nil, time0: nil, "p/.kafka_cleanshutdown": nil, "p/recovery-point-offset-checkpoint": []byte("0\n1\nt 0 3\n")}, "offset 3 is not the end of the log, 6", ""},
		"a stop of any other kind":   {map[string][]byte{log0: contiguous, "p/recovery-point-offset-checkpoint": []byte("0\n1\nt 0 3\n")}, "", ""},
		"a partition without a log":  {map[string][]byte{"p/t-0/leader-epoch-checkpoint": []byte("0\n0\n")}, "", ""},
		"an empty log":               {map[string][]byte{log0: nil, index0: nil, time0: nil}, "", ""},
		"what a compaction left":     {map[string][]byte{log0: contiguous, "p/t-0/" + zero + ".log.deleted": {1}, "p/t-0/" + zero + ".log.swap": {1}}, "", ""},
		"a transaction of nobody":    {map[string][]byte{log0: contiguous, "p/t-0/" + zero + ".txnindex": make([]byte, txnEntry)}, zero + ".txnindex is bad at position 0, entry 0: ", ""},
		"a torn end":                 {map[string][]byte{log0: contiguous[:len(contiguous)-1], index0: index}, zero + ".log is bad at position 146: incomplete batch: the last ", ""},
		"a leader epoch out of line": {map[string][]byte{log0: withEpoch(contiguous, 146, -7)}, zero + ".log is bad at position 146, offset 3: leader epoch -7 after 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, p := range c.files {
				f = filepath.Join(dir, f)
				if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, p, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			var errs bytes.Buffer
			err := Run(io.Discard, &errs, []string{filepath.Join(dir, "p")}, Options{})
			if (c.want == "" && err != nil) || (c.want != "" && !errors.Is(err, ErrBad)) || !strings.Contains(errs.String(), c.want) {
				t.Errorf("%v\n%swant %q", err, errs.String(), c.want)
			}
			if !strings.Contains(errs.String(), c.notes) || (c.want == "" && c.notes == "" && errs.Len() > 0) {
				t.Errorf("%swant the note %q", errs.String(), c.notes)
			}
		})
	}
}

func withEpoch(log []byte, pos int, epoch int32) []byte {
	out := bytes.Clone(log)
	batch.Batch(out[pos:]).SetPartitionLeaderEpoch(epoch)
	return out
}

func emptySnapshot() []byte {
	return []byte{0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0} // the CRC32C of four zero bytes
}

package dumplog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stet/zerocopy/batch"
)

// TestFlippedBitsOfALoneLog: of a log file that is given without its directory, every flipped bit outside the CRC is
// found that contradicts the batches around it, and nothing is found in the file as it was.
func TestFlippedBitsOfALoneLog(t *testing.T) {
	_, part := wholeDir(t)
	name := filepath.Join(part, "00000000000000000000.log")
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lone := filepath.Join(t.TempDir(), filepath.Base(name))
	dump := func(p []byte) (string, error) {
		t.Helper()
		if err := os.WriteFile(lone, p, 0o600); err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		err := Run(io.Discard, &errs, []string{lone}, Options{})
		return errs.String(), err
	}
	if errs, err := dump(good); err != nil || errs != "" {
		t.Fatalf("the untouched file: %v\n%s", err, errs)
	}
	// Positions of all batches: a flip is named at its batch or at the one that it contradicts.
	var at []int
	for pos := 0; pos < len(good); pos += int(batch.SizeOf(good[pos:])) {
		at = append(at, pos)
	}
	if len(at) < 4 {
		t.Fatalf("only %d batches", len(at))
	}
	epochOf := func(i int) int32 { return batch.Batch(good[at[i]:]).PartitionLeaderEpoch() }
	found := 0
	for i := 0; i < len(at)-1; i++ { // nothing follows the last
		for _, field := range [][2]int{{0, 8}, {12, 16}} { // base offset, leader epoch
			for o := field[0]; o < field[1]; o++ {
				for bit := range 8 {
					bad := bytes.Clone(good)
					bad[at[i]+o] ^= 1 << bit
					errs, err := dump(bad)
					if !errors.Is(err, ErrBad) {
						e := batch.Batch(bad[at[i]:]).PartitionLeaderEpoch()
						if field[0] == 12 && e >= epochOf(max(i-1, 0)) && e <= epochOf(i+1) || field[0] == 12 && i == 0 && e == -1 {
							continue // an epoch that may have begun here
						}
						t.Errorf("batch %d byte %d bit %d: not found", i, o, bit)
						continue
					}
					found++
					here, head, next := fmt.Sprintf("position %d,", at[i]), fmt.Sprintf("position %d:", at[i]), fmt.Sprintf("position %d,", at[i+1])
					if !strings.Contains(errs, here) && !strings.Contains(errs, head) && !strings.Contains(errs, next) {
						t.Errorf("batch %d byte %d bit %d: named elsewhere:\n%s", i, o, bit, errs)
					}
				}
			}
		}
	}
	t.Logf("%d flips found in %d batches", found, len(at))
	// What a cleaner leaves is no finding: offsets that are not there.
	thin := append(bytes.Clone(good[:at[1]]), good[at[2]:]...)
	if errs, err := dump(thin); err != nil || errs != "" {
		t.Errorf("a gap: %v\n%s", err, errs)
	}
}

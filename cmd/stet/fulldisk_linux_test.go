package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"stet/internal/testkit"
)

// smallDisk is a file system of its own, seen by commands under `under`; files is how the test itself reaches it.
type smallDisk struct {
	path, files string
	under       []string
}

// newSmallDisk mounts one in a mount namespace that lasts as long as the test.
func newSmallDisk(t *testing.T, size string) smallDisk {
	t.Helper()
	d := smallDisk{path: t.TempDir()}
	holder := exec.Command("unshare", "-m", "sh", "-c", `mount -t tmpfs -o size="$1" none "$0" && echo mounted && read end`, d.path, size)
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = holder.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Skip("NOT TESTED on a real full disk: no mount namespace here")
	}
	pid := strconv.Itoa(holder.Process.Pid)
	d.files = filepath.Join("/proc", pid, "root", d.path)
	d.under = []string{"nsenter", "-t", pid, "-m", "--"}
	return d
}

// fill takes what is left; the function it returns gives it back.
func (d smallDisk) fill(t *testing.T) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.files, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b[:min(len(b), 4096)])
	return min(len(b), 4096), nil
}

// TestFullMetadataDisk: the disk of the metadata fills up. What needs them is refused with the reason, the partitions of other
// directories go on, and with room again so do the metadata, without a restart.
func TestFullMetadataDisk(t *testing.T) {
	t.Parallel()
	small, other := newSmallDisk(t, "32m"), t.TempDir()
	ctx := contextFor(t, 2*time.Minute)
	p := testkit.StartProcessUnder(t, small.under, filepath.Join(small.path, "d")+","+other)
	cl := testkit.Client(t, p.Addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm := kadm.NewClient(cl)
	createTopic(ctx, t, p.Addr, "t", 2) // one partition in each directory
	place := -1
	for i := range 2 {
		if _, err := os.Stat(filepath.Join(other, fmt.Sprintf("t-%d", i))); err == nil {
			place = i
		}
	}
	if place < 0 {
		t.Fatal("no partition in the other directory")
	}
	produce := func() error {
		return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: int32(place), Value: []byte("v")}).FirstErr()
	}
	alter := func(n int) error {
		value := strconv.Itoa(1_000_000 + n)
		r, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, "t")
		if err == nil {
			if err = r[0].Err; err != nil {
				err = fmt.Errorf("%w %s", err, r[0].ErrMessage)
			}
		}
		return err
	}

	if err := produce(); err != nil {
		t.Fatal(err)
	}
	free := small.fill(t)
	var err error
	for n := 0; err == nil; n++ { // the file has some room of its own
		if n == 5000 {
			t.Fatal("the metadata are written on a full disk")
		}
		err = alter(n)
	}
	if text := err.Error(); !strings.Contains(text, "stet-metadata cannot be written") || !strings.Contains(text, "no space left on device") {
		t.Errorf("%v", err)
	}
	if _, text, code := testkit.Stet(t, "loadgen", "produce", "--bootstrap-server", p.Addr, "--topic", "new", "--create", "--duration", "1s"); code == 0 || !strings.Contains(text, "no space left on device") {
		t.Errorf("a topic is created: %s", text)
	}
	if err := produce(); err != nil {
		t.Errorf("a partition on a disk with room: %v", err)
	}
	free()
	for n := 5000; ; n++ {
		if err = alter(n); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%v\n%s", err, p.Stderr())
		}
	}
	// Some small write may fit in between, but the last word is that they can be written.
	for strings.LastIndex(p.Stderr(), "metadata can be written again") <= strings.LastIndex(p.Stderr(), "metadata cannot be written") {
		if ctx.Err() != nil {
			t.Fatalf("the log does not say that the metadata can be written again:\n%s", p.Stderr())
		}
		time.Sleep(10 * time.Millisecond) // the pipe may be slower than the answer
	}
	if err := produce(); err != nil {
		t.Error(err)
	}
	p.Stop()
	p.Restart(t)
	createTopic(ctx, t, p.Addr, "after", 2)
	ends, err := adm.ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := ends.Error(); err != nil {
		t.Error(err)
	}
	if end, _ := ends.Lookup("t", int32(place)); end.Offset != 3 {
		t.Errorf("the log ends at %d", end.Offset)
	}
}

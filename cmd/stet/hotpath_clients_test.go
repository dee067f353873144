package main_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
	"stet/internal/testkit/port"
	"stet/zerocopy/batch"
)

// systemCalls are those of the read and write families that a process has made (send and recv of sockets are not among
// them, read and sendfile are).
func systemCalls(t *testing.T, pid int) (reads, writes float64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		t.Skipf("this system does not count system calls: %v", err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		name, v, _ := strings.Cut(line, ": ")
		n, _ := strconv.ParseFloat(v, 64)
		switch name {
		case "syscr":
			reads = n
		case "syscw":
			writes = n
		}
	}
	return reads, writes
}

// plainClient sends frames that were built before and reads the answers into one buffer.
type plainClient struct {
	t   *testing.T
	c   net.Conn
	buf []byte
}

func newPlainClient(t *testing.T, addr string) *plainClient {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return &plainClient{t, c, make([]byte, 2<<20)}
}

func (c *plainClient) roundTrip(frame []byte) []byte {
	c.t.Helper()
	if _, err := c.c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.ReadFull(c.c, c.buf[:4]); err != nil {
		c.t.Fatal(err)
	}
	n := binary.BigEndian.Uint32(c.buf)
	if _, err := io.ReadFull(c.c, c.buf[:n]); err != nil {
		c.t.Fatal(err)
	}
	return c.buf[:n]
}

func frameOf(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).AppendRequest(nil, req, 1)
}

// costs counts what n rounds cost the broker beyond a few, per round: what counting itself costs falls out.
func costs(t *testing.T, addr string, pid, n int, round func()) (allocs, bytes, reads, writes float64) {
	t.Helper()
	run := func(n int) [4]float64 {
		r0, w0 := systemCalls(t, pid)
		m0 := memStats(t, addr)
		for range n {
			round()
		}
		m1 := memStats(t, addr)
		r1, w1 := systemCalls(t, pid)
		return [4]float64{m1["Mallocs"] - m0["Mallocs"], m1["TotalAlloc"] - m0["TotalAlloc"], r1 - r0, w1 - w0}
	}
	run(n) // pools and indexes are made
	few := run(n / 10)
	all := run(n)
	per := func(i int) float64 { return (all[i] - few[i]) / float64(n-n/10) }
	t.Logf("per request: %.3f allocations of %.1f bytes, %.3f reads, %.3f writes", per(0), per(1), per(2), per(3))
	return per(0), per(1), per(2), per(3)
}

// TestHotPathClients counts what one request of a producer and of a consumer costs a broker (goal G9): a produce of one batch
// of 16 KiB is one read of the socket (and one that finds it empty), one write of the log, and no allocation; a
// fetch of 1 MiB is one sendfile beside that.
func TestHotPathClients(t *testing.T) {
	addr := port.Hold(t)
	p := testkit.StartProcess(t, "", "http.listener="+addr)
	createTopic(testkit.Context(t), t, p.Addr, "t", 1)
	c := newPlainClient(t, p.Addr)

	records := batch.Build(nil, batch.Header{PartitionLeaderEpoch: -1, Timestamp: time.Now().UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		batch.KV{Value: bytes.Repeat([]byte{'v'}, 16<<10)})
	pr := kmsg.NewPtrProduceRequest()
	pr.Version, pr.Acks, pr.TimeoutMillis = 9, -1, 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = records
	rt.Partitions = append(rt.Partitions, rp)
	pr.Topics = append(pr.Topics, rt)
	produce := frameOf(pr)
	allocs, size, reads, writes := costs(t, addr, p.Pid, 2000, func() { c.roundTrip(produce) })
	if allocs > 0.1 || size > 200 || reads > 2.1 || writes > 1.05 {
		t.Errorf("produce: %.3f allocations, %.0f bytes, %.2f reads, %.2f writes per request", allocs, size, reads, writes)
	}
	var answer kmsg.ProduceResponse
	answer.Version = 9
	if err := answer.ReadFrom(c.roundTrip(produce)[5:]); err != nil || answer.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal("the last produce failed", err)
	}

	fr := kmsg.NewPtrFetchRequest()
	fr.Version, fr.ReplicaID, fr.SessionEpoch, fr.MaxWaitMillis, fr.MinBytes, fr.MaxBytes = 11, -1, -1, 500, 1, 1<<20
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic = "t"
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes, fp.CurrentLeaderEpoch, fp.LogStartOffset = 1<<20, -1, -1
	ft.Partitions = append(ft.Partitions, fp)
	fr.Topics = append(fr.Topics, ft)
	fetch := frameOf(fr)
	if got := len(c.roundTrip(fetch)); got < 1<<20 {
		t.Fatal(fmt.Errorf("a fetch brought %d bytes", got))
	}
	allocs, size, reads, writes = costs(t, addr, p.Pid, 1000, func() { c.roundTrip(fetch) })
	if allocs > 14 || size > 2000 || reads > 6 || writes > 3 {
		t.Errorf("fetch: %.3f allocations, %.0f bytes, %.2f reads, %.2f writes per request", allocs, size, reads, writes)
	}
}

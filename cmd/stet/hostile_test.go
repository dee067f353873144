package main_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
	"stet/internal/testkit/port"
)

// rss is the resident memory of a process in bytes.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("needs /proc")
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// TestHostileClientsCostNothing: 300 clients that each claim a request of 100 MB, send
// a little of it and stop, and 50 that ask for much and read nothing. 30 GB are
// claimed; memory does not grow by them, and others are served all the while.
func TestHostileClientsCostNothing(t *testing.T) {
	ctx := contextFor(t, 2*time.Minute)
	http := port.Hold(t)
	p := testkit.StartProcess(t, "", "http.listener="+http, "queued.max.request.bytes=67108864", "max.connections.per.ip=100000")
	createTopic(ctx, t, p.Addr, "t", 1)
	cl := testkit.Client(t, p.Addr, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	produce := func() {
		t.Helper()
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 500_000)}).FirstErr(); err != nil {
			t.Fatalf("a proper client: %v", err)
		}
	}
	for range 20 {
		produce()
	}
	before := rss(t, p.Pid)

	var open []net.Conn
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		open = append(open, c)
		return c
	}
	const slow, sent = 300, 10_000
	for range slow {
		c := dial()
		half := binary.BigEndian.AppendUint32(nil, 100_000_000)
		half = append(half, 0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff) // a produce request
		if _, err := c.Write(append(half, make([]byte, sent)...)); err != nil {
			t.Fatal(err)
		}
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.ReplicaID, fetch.SessionEpoch, fetch.MaxBytes = 11, -1, -1, 50<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = "t"
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = 50<<20, -1
	rt.Partitions = append(rt.Partitions, rp)
	fetch.Topics = append(fetch.Topics, rt)
	for range 50 {
		c := dial()
		var all []byte
		for i := range int32(100) {
			all = append(all, kmsg.NewRequestFormatter().AppendRequest(nil, fetch, i)...)
		}
		if _, err := c.Write(all); err != nil {
			t.Fatal(err)
		}
	}

	memory := func() float64 { return scrape(t, http)["stet_broker_request_memory_bytes"] }
	for deadline := time.Now().Add(30 * time.Second); memory() < slow*sent; {
		if time.Now().After(deadline) {
			t.Fatalf("%.0f bytes of requests are held, %d were sent", memory(), slow*sent)
		}
	}
	if m := memory(); m > slow*(16<<10)+50*(16<<10) {
		t.Errorf("%.0f bytes are admitted for %d clients that sent %d each", m, slow, sent)
	}
	for range 20 {
		produce()
	}
	if grown := rss(t, p.Pid) - before; grown > 64<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	// And half a frame and its end: that connection goes, and what it held is given back.
	c := dial()
	if _, err := c.Write([]byte{0, 0, 1, 0, 0, 3, 0, 1}); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("half a frame: read %d bytes, %v; the connection was to be closed", n, err)
	}
	for _, c := range open {
		c.Close()
	}
	for deadline := time.Now().Add(30 * time.Second); memory() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%.0f bytes of requests are held after all have gone", memory())
		}
	}
}

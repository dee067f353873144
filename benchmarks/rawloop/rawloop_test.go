package rawloop_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"stet/benchmarks/rawloop"
	"stet/internal/testkit"
	"stet/internal/testkit/scripted"
)

// TestReceive: the files hold the source's bytes, all of them, whatever the limits of a response are.
func TestReceive(t *testing.T) {
	src := scripted.NewCluster(t, 1)
	topic := src.CreateTopic("t", 5)
	const batches = 500
	for i := range batches {
		src.Produce(topic, int32(i%5), 3, 700)
	}
	for _, limit := range []int32{0, 20 << 10} {
		dir := t.TempDir()
		res, err := rawloop.Receive(testkit.Context(t), rawloop.Options{Addr: src.Bootstrap(), Topic: "t", Dir: dir, MaxBytes: limit, PartitionMaxBytes: limit})
		if err != nil {
			t.Fatal(err)
		}
		if res.Batches != batches || res.Partitions != 5 || res.Writes < 5 {
			t.Errorf("limit %d: %+v", limit, res)
		}
		for p := range int32(5) {
			got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("t-%d.log", p)))
			if err != nil || !bytes.Equal(got, src.Bytes(topic, p)) {
				t.Errorf("limit %d: partition %d differs (%v)", limit, p, err)
			}
		}
	}
}

// TestVariants: however the bytes are received and written, they are the source's.
func TestVariants(t *testing.T) {
	src := scripted.NewCluster(t, 1)
	topic := src.CreateTopic("t", 5)
	const batches = 500
	for i := range batches {
		src.Produce(topic, int32(i%5), 3, 700)
	}
	src.Produce(topic, 4, 1, 300<<10) // above the buffer of the streams
	for name, o := range map[string]rawloop.Options{
		"pieces":           {Write: rawloop.Write{Piece: 5000}},
		"allocated":        {Write: rawloop.Write{Allocate: 1 << 20}},
		"stream":           {Stream: 64 << 10},
		"stream, limited":  {Stream: 64 << 10, MaxBytes: 20 << 10, PartitionMaxBytes: 20 << 10},
		"stream, one byte": {Stream: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o.Addr, o.Topic, o.Dir = src.Bootstrap(), "t", t.TempDir()
			res, err := rawloop.Receive(testkit.Context(t), o)
			if err != nil {
				t.Fatal(err)
			}
			if res.Batches != batches+1 {
				t.Errorf("%+v", res)
			}
			for p := range int32(5) {
				got, err := os.ReadFile(filepath.Join(o.Dir, fmt.Sprintf("t-%d.log", p)))
				if err != nil || !bytes.Equal(got, src.Bytes(topic, p)) {
					t.Errorf("partition %d differs (%v)", p, err)
				}
			}
		})
	}
}

// TestReceiveRefusesDamage: the baseline does check what it writes.
func TestReceiveRefusesDamage(t *testing.T) {
	src := scripted.NewCluster(t, 1)
	topic := src.CreateTopic("t", 1)
	bad := src.Produce(topic, 0, 3, 700)
	bad[len(bad)-1] ^= 1
	for _, stream := range []int{0, 64 << 10} {
		if _, err := rawloop.Receive(testkit.Context(t), rawloop.Options{Addr: src.Bootstrap(), Topic: "t", Stream: stream}); err == nil {
			t.Errorf("a damaged batch was taken, buffer %d", stream)
		}
	}
}

func TestSend(t *testing.T) {
	dir := t.TempDir()
	var files []string
	var want []byte
	for i := range 3 {
		b := bytes.Repeat([]byte{byte(i + 1)}, 1500<<10)
		want = append(want, b...)
		files = append(files, filepath.Join(dir, fmt.Sprint(i)))
		if err := os.WriteFile(files[i], b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, err = rawloop.Send(c.(*net.TCPConn), files)
		}
		done <- err
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d (%v)", len(got), len(want), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package server

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// piped is an input whose client writes into a pipe, for tests on fake time.
func piped(t *testing.T, mem *memory, stall time.Duration) (net.Conn, *input) {
	t.Helper()
	client, nc := net.Pipe()
	t.Cleanup(func() { client.Close(); nc.Close() })
	in := &input{}
	in.start(nc, mem, time.Hour, stall)
	return client, in
}

// TestTrickleHoldsNothingLonger: a byte now and then does not prolong the time for a frame, of whatever size.
func TestTrickleHoldsNothingLonger(t *testing.T) {
	for name, size := range map[string]uint32{"small": 500, "in place": 32000, "large": 10 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := newMemory(1 << 20)
				client, in := piped(t, mem, time.Minute)
				var sender sync.WaitGroup
				sender.Go(func() {
					b := binary.BigEndian.AppendUint32(nil, size)
					for ; ; b = []byte{0} {
						if _, err := client.Write(b); err != nil {
							return // the server side ended it
						}
						time.Sleep(20 * time.Second)
					}
				})
				start := time.Now()
				_, err := in.frame(context.Background(), 100<<20)
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the frame ends with %v", err)
				}
				if d := time.Since(start); d != time.Minute {
					t.Errorf("it ends after %v, want a minute", d)
				}
				if m := mem.inUse(); m > firstChunk {
					t.Errorf("%d bytes are admitted for a claim", m)
				}
				in.done()
				if m := mem.inUse(); m != 0 {
					t.Errorf("%d bytes stay admitted", m)
				}
				in.nc.Close()
				sender.Wait()
			})
		})
	}
}

// TestSlowUploadIsTaken: a large frame that comes steadily may take many times MaxStall, and so may single steps of it.
func TestSlowUploadIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 40 << 20
		client, in := piped(t, newMemory(64<<20), time.Minute)
		var sender sync.WaitGroup
		sender.Go(func() {
			if _, err := client.Write(binary.BigEndian.AppendUint32(nil, size)); err != nil {
				return // the reader below fails
			}
			for p := make([]byte, 1<<18); ; time.Sleep(3 * time.Second) { // 12 s for a MiB
				if _, err := client.Write(p); err != nil {
					return // the whole frame was read
				}
			}
		})
		start := time.Now()
		f, err := in.frame(context.Background(), 100<<20)
		if err != nil || len(f) != size {
			t.Fatalf("%d bytes after %v: %v", len(f), time.Since(start), err)
		}
		if d := time.Since(start); d < 7*time.Minute {
			t.Errorf("it took %v: this tests nothing", d)
		}
		in.done()
		in.nc.Close()
		sender.Wait()
	})
}

// TestWaitForMemoryIsNotTheClients: what a frame waited for its memory is not taken off the time for sending it.
func TestWaitForMemoryIsNotTheClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMemory(1000)
		client, in := piped(t, mem, 20*time.Second)
		if err := mem.acquire(context.Background(), 1000, 0); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(25*time.Second, func() { mem.release(1000) })
		var sender sync.WaitGroup
		sender.Go(func() {
			wire := request(0, 1, "slow to come")
			for _, p := range [][]byte{wire[:2], wire[2:9], wire[9:]} {
				if _, err := client.Write(p); err != nil {
					return // the reader below fails
				}
				time.Sleep(10 * time.Second)
			}
		})
		if _, err := in.frame(context.Background(), 1<<20); err != nil {
			t.Error(err)
		}
		in.done()
		in.nc.Close()
		sender.Wait()
	})
}

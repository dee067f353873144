package main_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit"
	"stet/internal/testkit/port"
	"stet/internal/testkit/scripted"
)

// scrape reads the values of /metrics.
func scrape(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for _, line := range strings.Split(string(body), "\n") {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
				m[line[:at]] = v
			}
		}
	}
	return m
}

// memStats reads runtime.MemStats, which are exact, as the heap profile ends with them.
func memStats(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/debug/pprof/heap?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]float64{}
	for _, line := range strings.Split(string(body), "\n") {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "#" && f[2] == "=" {
			if v, err := strconv.ParseFloat(f[3], 64); err == nil {
				m[f[1]] = v
			}
		}
	}
	if m["Mallocs"] == 0 || m["TotalAlloc"] == 0 {
		t.Fatal("the heap profile lacks runtime.MemStats")
	}
	return m
}

// TestHotPathAllocations is goal G10 on the whole process: between two scrapes it
// copies 40,000 batches, and allocates nothing per batch and nothing of their size, once the
// buffers it needs are there.
func TestHotPathAllocations(t *testing.T) {
	src := scripted.NewCluster(t, 1)
	topic := src.CreateTopic("t", 4)
	for p := range int32(4) {
		src.Produce(topic, p, 1, 10)
	}
	addr := port.Hold(t)
	p := testkit.StartProcess(t, "", "mirror.metadata.refresh.interval.ms=600000", "http.listener="+addr)

	// The source knows how far the copy is: nobody has to ask the broker meanwhile.
	var mu sync.Mutex
	asked, fetches := map[int32]int64{}, 0
	changed := make(chan struct{}, 1)
	src.SetHook(func(c *scripted.Call) {
		r, ok := c.Request.(*kmsg.FetchRequest)
		if !ok {
			return
		}
		mu.Lock()
		for _, rt := range r.Topics {
			for _, rp := range rt.Partitions {
				asked[rp.Partition] = rp.FetchOffset
			}
		}
		fetches++
		mu.Unlock()
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	// A request leaves before the response before it is appended, the one after it not.
	until := func(end int64) {
		t.Helper()
		timeout := time.After(time.Minute)
		last := 0
		for {
			mu.Lock()
			done := 0
			for _, at := range asked {
				if at == end {
					done++
				}
			}
			n := fetches
			mu.Unlock()
			if done == 4 && last == 0 {
				last = n
			}
			if done == 4 && n > last {
				return
			}
			select {
			case <-changed:
			case <-timeout:
				t.Fatalf("not fetched to %d: %v", end, asked)
			}
		}
	}
	mirror(t, p, "m", src.Bootstrap(), "t", "fetch.wait.max.ms=200")
	until(1)
	waitFor(t, p, "m", "lag-zero")
	in := func(m map[string]float64, what string) (sum float64) {
		for i := range 4 {
			sum += m[fmt.Sprintf(`stet_mirror_in_%s_total{mirror="m",partition="%d",topic="t"}`, what, i)]
		}
		return sum
	}
	round := func(batches int) (mallocs, bytes float64) {
		t.Helper()
		var all [4][][]byte
		other := src.CreateTopic("built", 4) // built aside, so that they are there all at once
		src.Change(func() {
			for i := range 4 {
				other.Logs[i].Start = topic.Logs[i].End()
			}
		})
		size := 0
		for i := range batches {
			b := src.Produce(other, int32(i%4), 2, 400)
			all[i%4] = append(all[i%4], b)
			size += len(b)
		}
		before, start := scrape(t, addr), memStats(t, addr)
		src.Change(func() {
			for i := range 4 {
				topic.Logs[i].Batches = append(topic.Logs[i].Batches, all[i]...)
			}
		})
		end := topic.Logs[0].End()
		until(end)
		stop, after := memStats(t, addr), scrape(t, addr)
		if n := in(after, "batches") - in(before, "batches"); int(n) != batches {
			t.Errorf("%.0f batches are appended, want %d", n, batches)
		}
		if n := in(after, "bytes") - in(before, "bytes"); int(n) != size {
			t.Errorf("%.0f bytes are appended, want %d", n, size)
		}
		mallocs, bytes = stop["Mallocs"]-start["Mallocs"], stop["TotalAlloc"]-start["TotalAlloc"]
		t.Logf("%d batches, %d bytes: %.0f allocations, %.0f bytes", batches, size, mallocs, bytes)
		return mallocs, bytes
	}
	round(40_000) // the buffers are made
	small, smallBytes := round(400)
	// Responses come in other sizes and overlap in another way each time, so a round may
	// need a buffer that was not there yet, which the next one finds. What is allocated per batch
	// or per byte shows in each of them.
	const rounds = 6
	var perBatch, extra float64
	for range rounds {
		large, largeBytes := round(40_000)
		perBatch, extra = (large-small)/39_600, largeBytes-smallBytes
		if perBatch <= 0.05 && extra <= 2<<20 {
			return
		}
	}
	t.Errorf("each of %d times that 35 MB were copied, something was allocated; the last time %.3f objects per batch, %.0f bytes", rounds, perBatch, extra)
}

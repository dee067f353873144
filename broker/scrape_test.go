package broker_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestScrape: what promtool says of /metrics is nothing, partitions beyond the limit are one series per metric,
// and what the sums say is what the partitions have.
func TestScrape(t *testing.T) {
	const limit, partitions, batches = 3, 8, 5
	w := newWorld(t, "mirror.metrics.max.partitions=3")
	topic := w.src.CreateTopic("orders", partitions)
	w.create()
	w.startTopics("orders")
	for p := range int32(partitions) {
		for range batches {
			w.src.Produce(topic, p, 2, 100)
		}
	}
	w.wait("all is copied", func(p part) bool { return mirroring(p) && p.DestinationOffset == 2*batches })
	resp, err := http.Get("http://" + w.b.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "go_") && !strings.HasPrefix(p.Metric, "process_") { // not ours
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if n := bytes.Count(text, []byte("\nstet_mirror_lag_records{")); n != limit+1 {
		t.Errorf("%d series of the lag, want %d and a sum", n, limit)
	}
	m := counters(t, w.b)
	name := func(metric, topic, partition string) string {
		return metric + `{mirror="m",partition="` + partition + `",topic="` + topic + `"}`
	}
	if got := m[name("stet_mirror_in_batches_total", "other", "other")]; got != (partitions-limit)*batches {
		t.Errorf("the sum has %v batches", got)
	}
	if got := m[name("stet_mirror_in_batches_total", "orders", "2")]; got != batches {
		t.Errorf("partition 2 has %v batches", got)
	}
	if got, ok := m[name("stet_mirror_lag_records", "other", "other")]; !ok || got != 0 {
		t.Errorf("the sum of the lag is %v", got)
	}
}

package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestDeclared(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Declared {
		if seen[d.Name] {
			t.Errorf("%s is declared twice", d.Name)
		}
		seen[d.Name] = true
		if !strings.HasPrefix(d.Name, "stet_mirror_") && !strings.HasPrefix(d.Name, "stet_broker_") {
			t.Errorf("%s: the prefix is neither stet_mirror_ nor stet_broker_", d.Name)
		}
		if total := strings.HasSuffix(d.Name, "_total"); total != (d.Kind == Counter) {
			t.Errorf("%s: counters, and only they, end in _total", d.Name)
		}
		if d.Kind == Histogram && !strings.HasSuffix(d.Name, "_duration_seconds") {
			t.Errorf("%s: a histogram that is no duration", d.Name)
		}
		if !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%s: the help text is no sentence", d.Name)
		}
	}
}

func TestExposition(t *testing.T) {
	r := New()
	r.Source(func(emit Emit) {
		emit(MirrorLagRecords, 7, "m", "orders", "3")
		emit(MirrorLagRecords, -1, `a"b\c`, "x", "0")
		emit(MirrorLagSeconds, 0.25, "m", "orders", "3")
		emit(BrokerRequests, 12)
	})
	r.Durations(MirrorStopDuration).Observe(30*time.Millisecond, "m")
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`stet_mirror_lag_records{mirror="m",partition="3",topic="orders"} 7`,
		`stet_mirror_lag_records{mirror="a\"b\\c",partition="0",topic="x"} -1`, `stet_mirror_lag_seconds{mirror="m",partition="3",topic="orders"} 0.25`,
		"# TYPE stet_broker_requests_total counter", "stet_broker_requests_total 12", "go_goroutines ",
		`stet_mirror_stop_duration_seconds_bucket{mirror="m",le="0.05"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the exposition lacks %q", want)
		}
	}
}

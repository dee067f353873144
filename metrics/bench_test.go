package metrics

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// BenchmarkScrape is a scrape of what 2000 partitions with series of their own expose.
func BenchmarkScrape(b *testing.B) {
	r := New()
	r.Source(func(emit Emit) {
		for p := range 2000 {
			for _, d := range []*Desc{MirrorLagRecords, MirrorLagSeconds, MirrorLagAge, MirrorInBytes, MirrorInBatches, MirrorRetries, MirrorGapRecords, MirrorCutRecords, MirrorEpochBumps, MirrorThrottledNow} {
				emit(d, float64(p), "mirror", "topic", strconv.Itoa(p))
			}
		}
	})
	for _, encoding := range []string{"", "gzip"} {
		b.Run("encoding="+encoding, func(b *testing.B) {
			req := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
			req.Header.Set("Accept-Encoding", encoding)
			for b.Loop() {
				w := httptest.NewRecorder()
				r.Handler().ServeHTTP(w, req)
				b.SetBytes(int64(w.Body.Len()))
			}
		})
	}
}

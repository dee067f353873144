package metrics

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/bytebufferpool"
)

// contentType is Prometheus' text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler serves /metrics. What the sources emit is written as text at once: tens of thousands of series would
// cost several times as much as values of the client library. The library adds what it has itself.
func (r *Registry) Handler() http.Handler {
	library := promhttp.HandlerFor(r.prom, promhttp.HandlerOpts{DisableCompression: true})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		out := bytebufferpool.Get()
		defer bytebufferpool.Put(out)
		r.write(out)
		plain, err := http.NewRequestWithContext(req.Context(), http.MethodGet, "/metrics", http.NoBody) // no Accept: text
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body := &bodyWriter{buf: out, header: http.Header{}}
		if library.ServeHTTP(body, plain); body.status >= http.StatusBadRequest {
			w.WriteHeader(body.status)
		}
		w.Header().Set("Content-Type", contentType)
		if !strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
			_, _ = w.Write(out.B) // whoever asked is gone
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a legal one
		_, _ = z.Write(out.B)
		_ = z.Close()
	})
}

// bodyWriter is a response that goes into a buffer.
type bodyWriter struct {
	buf    *bytebufferpool.ByteBuffer
	header http.Header
	status int
}

func (w *bodyWriter) Header() http.Header         { return w.header }
func (w *bodyWriter) WriteHeader(status int)      { w.status = status }
func (w *bodyWriter) Write(b []byte) (int, error) { return w.buf.Write(b) }

// write asks the sources. The series of a metric come together, in the order of Declared.
func (r *Registry) write(out *bytebufferpool.ByteBuffer) {
	r.mu.Lock()
	sources := r.sources
	r.mu.Unlock()
	families := map[*Desc]*bytebufferpool.ByteBuffer{}
	defer func() {
		for _, b := range families {
			bytebufferpool.Put(b)
		}
	}()
	emit := func(d *Desc, value float64, labels ...string) {
		b := families[d]
		if b == nil {
			b = bytebufferpool.Get()
			families[d] = b
		}
		b.B = appendSeries(b.B, d, value, labels)
	}
	for _, f := range sources {
		f(emit)
	}
	for _, d := range Declared {
		if b := families[d]; b != nil {
			kind := "gauge"
			if d.Kind == Counter {
				kind = "counter"
			}
			out.B = append(out.B, "# HELP "+d.Name+" "+helpEscaper.Replace(d.Help)+"\n# TYPE "+d.Name+" "+kind+"\n"...)
			out.B = append(out.B, b.B...)
		}
	}
}

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func appendSeries(b []byte, d *Desc, value float64, labels []string) []byte {
	if len(labels) != len(d.Labels) {
		panic("BUG: " + d.Name + " is emitted with the wrong number of labels")
	}
	b = append(b, d.Name...)
	for n, i := range d.order {
		if n == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = append(append(b, d.Labels[i]...), `="`...)
		if strings.ContainsAny(labels[i], "\\\"\n") {
			b = append(b, labelEscaper.Replace(labels[i])...)
		} else {
			b = append(b, labels[i]...)
		}
		b = append(b, '"')
	}
	if len(d.Labels) > 0 {
		b = append(b, '}')
	}
	b = append(b, ' ')
	if v := int64(value); float64(v) == value {
		b = strconv.AppendInt(b, v, 10)
	} else {
		b = strconv.AppendFloat(b, value, 'g', -1, 64)
	}
	return append(b, '\n')
}

package broker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"stet/metrics"
)

// httpServer serves metrics, health and, to loopback only, profiles.
type httpServer struct {
	ln  net.Listener
	srv *http.Server
}

func (b *Broker) startHTTP() error {
	addr := b.cfg.value("http.listener")
	if addr == "" {
		return nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return fmt.Errorf("http.listener: cannot listen on %s: %w (http.listener= turns it off)", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", b.metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !b.ready.Load() || !b.quorum.IsLeader() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
		if n := b.offlinePartitions(); n > 0 {
			fmt.Fprintf(w, "%d partitions are offline: free or repair the disk, then restart the broker\n", n)
		}
	})
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		mux.HandleFunc(path, loopbackOnly(h))
	}
	b.http = &httpServer{ln: ln, srv: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
	go func() { _ = b.http.srv.Serve(ln) }()
	return nil
}

// loopbackOnly keeps profiles, which tell a lot, on the machine.
func loopbackOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			http.Error(w, "profiles are served to loopback only", http.StatusForbidden)
			return
		}
		h(w, r)
	}
}

func (h *httpServer) addr() string {
	if h == nil {
		return ""
	}
	return h.ln.Addr().String()
}

func (h *httpServer) close() {
	if h != nil {
		_ = h.srv.Close()
	}
}

// offlinePartitions counts the partitions whose log cannot be used.
func (b *Broker) offlinePartitions() (n int) {
	r := b.replicas.Load()
	for _, p := range r.All() {
		if p.Log().Err() != nil {
			n++
		}
	}
	return n + r.Missing()
}

// collect reports the broker's own values at a scrape.
func (b *Broker) collect(emit metrics.Emit) {
	emit(metrics.BrokerInfo, 1, b.version, fmt.Sprint(b.node), b.ClusterID())
	s := b.server.Stats()
	emit(metrics.BrokerConnections, float64(s.Connections))
	emit(metrics.BrokerAccepted, float64(s.Accepted))
	emit(metrics.BrokerRefused, float64(s.Refused))
	emit(metrics.BrokerRequests, float64(s.Requests))
	emit(metrics.BrokerRequestMemory, float64(s.RequestMemory))
	c := &b.api.Counters
	emit(metrics.BrokerProduceBytes, float64(c.ProduceBytes.Load()))
	emit(metrics.BrokerProduceBatches, float64(c.ProduceBatches.Load()))
	emit(metrics.BrokerProduceRequests, float64(c.ProduceRequests.Load()))
	emit(metrics.BrokerFetchRequests, float64(c.FetchRequests.Load()))
	emit(metrics.BrokerSendfileBytes, float64(b.server.Sent.SendfileBytes.Load()))
	emit(metrics.BrokerCopiedBytes, float64(b.server.Sent.CopiedBytes.Load()))
	emit(metrics.BrokerMemoryOutBytes, float64(b.server.Sent.MemoryBytes.Load()))
	var bytes int64
	r := b.replicas.Load()
	all, offline := r.All(), r.Missing()
	for _, p := range all {
		bytes += p.Log().Size()
		if p.Log().Err() != nil {
			offline++
		}
	}
	emit(metrics.BrokerPartitions, float64(len(all)))
	emit(metrics.BrokerOffline, float64(offline))
	emit(metrics.BrokerLogBytes, float64(bytes))
	emit(metrics.BrokerCorruptBatches, float64(b.logs.CorruptBatches()))
	emit(metrics.BrokerMetadataOffset, float64(b.quorum.Image().Offset()))
}

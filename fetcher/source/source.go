package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy"
)

// Source is one source cluster. It is safe for concurrent use.
type Source struct {
	o        Options
	pool     *zerocopy.Pool // of control responses
	epochs   batchers[EpochQuestion, EpochAnswer]
	offsets  batchers[OffsetQuestion, OffsetAnswer]
	lifetime context.Context
	close    context.CancelFunc

	mu        sync.Mutex
	links     map[string][]idle // by address
	brokers   map[int32]string
	doubted   map[int32]bool
	clusterID string
	seed      int
}

type idle struct {
	l     *link
	since time.Time
}

// New returns a source; it connects when it is asked something.
func New(o Options) *Source {
	o.complete()
	s := &Source{o: o, pool: zerocopy.NewPool(16 << 20), links: map[string][]idle{}, brokers: map[int32]string{}, doubted: map[int32]bool{}}
	s.lifetime, s.close = context.WithCancel(context.Background())
	s.epochs.ask, s.offsets.ask = s.askEpochs, s.askOffsets
	s.epochs.ctx, s.offsets.ctx = s.lifetime, s.lifetime
	return s
}

// Close ends what is under way and closes the control connections. Fetch connections belong to the fetchers.
func (s *Source) Close() {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ls := range s.links {
		for _, i := range ls {
			i.l.conn.Close()
		}
	}
	clear(s.links)
}

// Bootstrap is the list that the source was made with, joined by commas.
func (s *Source) Bootstrap() string { return strings.Join(s.o.Bootstrap, ",") }

// address returns where a broker listens, asking the cluster when that is unknown or in doubt.
func (s *Source) address(ctx context.Context, broker int32) (string, error) {
	s.mu.Lock()
	addr, ok := s.brokers[broker]
	doubted := s.doubted[broker]
	s.mu.Unlock()
	if ok && !doubted {
		return addr, nil
	}
	if _, err := s.Topics(ctx, []string{}); err != nil {
		if ok { // the rest of the cluster is no help; the broker may be back where it was
			return addr, nil
		}
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.doubted, broker)
	if addr, ok = s.brokers[broker]; !ok {
		return "", fmt.Errorf("broker %d is not in the source's metadata", broker)
	}
	return addr, nil
}

func (s *Source) doubt(broker int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubted[broker] = true
}

// Learn notes the address of a broker that a fetch response named (KIP-951).
func (s *Source) Learn(broker int32, host string, port int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.brokers[broker] = hostPort(host, port)
	delete(s.doubted, broker)
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

// candidates are the addresses to try for a question that every broker answers: known brokers, then the bootstrap list.
func (s *Source) candidates() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	seen := map[string]bool{}
	add := func(addr string) {
		if !seen[addr] {
			seen[addr] = true
			out = append(out, addr)
		}
	}
	for addr, ls := range s.links {
		if len(ls) > 0 {
			add(addr)
		}
	}
	for i := range s.o.Bootstrap {
		add(s.o.Bootstrap[(i+s.seed)%len(s.o.Bootstrap)])
	}
	for id, addr := range s.brokers {
		if !s.doubted[id] {
			add(addr)
		}
	}
	s.seed++
	return out
}

// anyBroker sends a request to the first broker that can be reached. A request that a reached broker refuses is not
// sent elsewhere.
func (s *Source) anyBroker(ctx context.Context, req kmsg.Request, limit int16) (kmsg.Response, error) {
	var errs []error
	for _, addr := range s.candidates() {
		resp, err := s.request(ctx, addr, req, limit)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrVersion) {
			return resp, err
		}
		errs = append(errs, err)
	}
	return nil, joinLine(errs)
}

// joinLine joins errors into one line.
func joinLine(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	sort.Strings(texts) // the order of the tries differs from time to time
	return fmt.Errorf("%s%w", strings.Join(texts, "; "), silent{errs})
}

// silent keeps errors findable without printing them twice.
type silent struct{ errs []error }

func (silent) Error() string     { return "" }
func (s silent) Unwrap() []error { return s.errs }

// ErrVersion says that a broker does not have a request, or no version of it that we know.
var ErrVersion = errors.New("not supported by the source")

// request sends req to addr over a control connection. limit is the newest version that the caller understands.
func (s *Source) request(ctx context.Context, addr string, req kmsg.Request, limit int16) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(s.lifetime, cancel)()
	for {
		l, fresh, err := s.take(ctx, addr)
		if err != nil {
			return nil, err
		}
		version, ok := l.version(req.Key(), min(limit, req.MaxVersion()))
		if !ok {
			s.give(l)
			return nil, fmt.Errorf("%s: %s: %w", addr, kmsg.NameForKey(req.Key()), ErrVersion)
		}
		req.SetVersion(version)
		lease, body, err := l.exchange(ctx, req)
		if err != nil {
			l.conn.Close()
			if !fresh && ctx.Err() == nil {
				continue // it had been closed while it idled; a question may be asked twice
			}
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
		resp := req.ResponseKind()
		resp.SetVersion(version)
		err = resp.ReadFrom(append([]byte(nil), body...)) // kmsg may keep sub-slices
		lease.Release()
		if err != nil {
			l.conn.Close()
			return nil, fmt.Errorf("%s: %w: %s: %w", addr, ErrProtocol, kmsg.NameForKey(req.Key()), err)
		}
		s.give(l)
		return resp, nil
	}
}

// take returns an idle control connection or dials one.
func (s *Source) take(ctx context.Context, addr string) (l *link, fresh bool, err error) {
	s.mu.Lock()
	for len(s.links[addr]) > 0 {
		ls := s.links[addr]
		i := ls[len(ls)-1]
		s.links[addr] = ls[:len(ls)-1]
		if time.Since(i.since) < s.o.MaxIdle {
			s.mu.Unlock()
			return i.l, false, nil
		}
		i.l.conn.Close()
	}
	s.mu.Unlock()
	l, err = s.o.dial(ctx, addr, s.o.controlClientID(), s.pool, maxControlFrame, controlEager)
	return l, true, err
}

func (s *Source) give(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifetime.Err() != nil || len(s.links[l.addr]) >= 2 {
		l.conn.Close()
		return
	}
	s.links[l.addr] = append(s.links[l.addr], idle{l, time.Now()})
}

// Ping says whether a broker answers.
func (s *Source) Ping(ctx context.Context, broker int32) error {
	addr, err := s.address(ctx, broker)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	_, err = s.request(ctx, addr, req, 13)
	if err != nil {
		s.doubt(broker)
	}
	return err
}

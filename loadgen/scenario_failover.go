package loadgen

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"stet/broker/mirrormsg"
)

// FailoverOptions say what is failed over, and how.
type FailoverOptions struct {
	Options
	Source, Destination, Mirror string
	Topics                      string // RE2, full match
	Rounds                      int
	SourcePID                   int // killed (SIGKILL) right before the stop; 0: the source lives on
}

// Failover loads the source, stops the mirror and measures how soon each
// partition is writable and readable at the destination. Between rounds the
// mirror is started again (a rehearsal), which cuts what the probes wrote.
func Failover(ctx context.Context, o FailoverOptions) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Rounds < 1 {
		return nil, fmt.Errorf("--rounds %d is not above 0", o.Rounds)
	}
	if o.SourcePID != 0 && o.Rounds > 1 {
		return nil, errors.New("--source-pid kills the source, so --rounds must be 1")
	}
	if o.SourcePID != 0 {
		if err := syscall.Kill(o.SourcePID, 0); err != nil { // before the first round, not after its load
			return nil, fmt.Errorf("--source-pid %d: %w", o.SourcePID, err)
		}
	}
	f := &failover{o: o, stop: NewRecorder(), ack: NewRecorder(), read: NewRecorder(), gap: NewRecorder()}
	var err error
	if f.src, err = openTarget(o.Source); err != nil {
		return nil, err
	}
	defer f.src.close()
	if f.dst, err = openTarget(o.Destination); err != nil {
		return nil, err
	}
	defer f.dst.close()
	if err := f.findTopics(ctx); err != nil {
		return nil, err
	}
	r := newReport("failover", o.Options)
	r.Parameters["rounds"], r.Parameters["mirror"], r.Parameters["topics"] = o.Rounds, o.Mirror, f.topics
	r.Failover = &FailoverResult{}
	for i := range o.Rounds {
		if i > 0 {
			err = f.restart(ctx)
		}
		if err == nil {
			err = f.round(ctx, r)
		}
		if err != nil {
			err = fmt.Errorf("round %d of %d: %w", i+1, o.Rounds, err)
			break
		}
		r.Failover.Rounds++
		if o.Progress != nil {
			p50, _ := f.ack.Quantile(.5)
			fmt.Fprintf(o.Progress, "failover round %d of %d: first acknowledgement p50 %.1f ms so far\n", i+1, o.Rounds, p50)
		}
	}
	r.add("stop_ms", f.stop)
	r.add("first_ack_ms", f.ack)
	r.add("first_read_ms", f.read)
	r.add("write_gap_ms", f.gap)
	r.Left = append(r.Left, f.stoppedNow(ctx))
	r.judge(evidence{errors: r.Load.Errors, lastErr: f.lastErr, cancelled: ctx.Err() != nil, ended: err})
	r.check("writable", f.failed == 0, "%d of %d partitions did not become writable and readable", f.failed, f.tried)
	return r, err
}

type failover struct {
	o                    FailoverOptions
	src, dst             *target
	topics               []string
	stop, ack, read, gap *Recorder
	tried, failed        int
	lastErr              string
	undos                []undo   // what takeBack does
	paused               []string // topics that resume resumes
	leaders              []string // at the source
	sent                 string   // the last request that moves the topics: sentStop, sentStart or none
}

func msOf(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (f *failover) findTopics(ctx context.Context) error {
	re, err := regexp.Compile("^(?:" + f.o.Topics + ")$")
	if err != nil {
		return fmt.Errorf("--topics %q is not an RE2 pattern: %w", f.o.Topics, err)
	}
	m, err := describeMirror(ctx, f.dst, f.o.Mirror)
	if err != nil {
		return err
	}
	for _, t := range m.Topics {
		if re.MatchString(t.TopicName) {
			f.topics = append(f.topics, t.TopicName)
		}
	}
	if len(f.topics) == 0 {
		return fmt.Errorf("no topic of mirror %s matches %s", f.o.Mirror, f.o.Topics)
	}
	sort.Strings(f.topics)
	return nil
}

func describeMirror(ctx context.Context, t *target, mirror string) (*mirrormsg.DescribeMirrorsResponseMirror, error) {
	req := mirrormsg.NewPtrDescribeMirrorsRequest()
	req.MirrorNames = []string{mirror}
	resp, err := req.RequestWith(ctx, t.cl)
	if err != nil {
		return nil, t.failed(err)
	}
	if err := mirrormsg.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Mirrors) != 1 {
		return nil, fmt.Errorf("no mirror %s", mirror)
	}
	if err := mirrormsg.ErrorForCode(resp.Mirrors[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("mirror %s: %w", mirror, err)
	}
	return &resp.Mirrors[0], nil
}

// round loads the source, stops, and probes.
func (f *failover) round(ctx context.Context, r *Report) error {
	manifests := map[string]*manifest{}
	var layouts []*layout
	loadCtx, endLoad := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() { endLoad(); wg.Wait() }()
	var loads []*load
	loadErrs := make([]error, len(f.topics))
	for i, topic := range f.topics {
		ls, err := f.src.layout(ctx, topic)
		if err != nil {
			return err
		}
		ld, err := f.dst.layout(ctx, topic)
		if err != nil {
			return err
		}
		layouts = append(layouts, ld)
		m := newManifest(topic)
		manifests[topic] = m
		o := f.o.Options
		o.Rate.PerSecond /= float64(len(f.topics))
		o.Acked = m.add
		o.Duration += switchPatience // the load goes on through the stop; endLoad ends it
		l, err := newLoad(ls, o)
		if err != nil {
			return err
		}
		loads = append(loads, l)
		wg.Add(1)
		go func() { defer wg.Done(); loadErrs[i] = l.run(loadCtx) }()
	}
	probes, err := openProbes(layouts)
	if err != nil {
		return err
	}
	defer closeProbes(probes)
	lost := make(chan struct{})
	for _, l := range loads {
		go func() {
			select {
			case <-l.ended:
				select {
				case lost <- struct{}{}:
				case <-loadCtx.Done():
				}
			case <-loadCtx.Done():
			}
		}()
	}
	select {
	case <-time.After(f.o.Warmup + f.o.Duration):
	case <-lost: // there is no fail-over under load without one
		endLoad()
		wg.Wait()
		return fmt.Errorf("the load of the source: %w", errors.Join(loadErrs...))
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.o.SourcePID != 0 {
		if err := syscall.Kill(f.o.SourcePID, syscall.SIGKILL); err != nil {
			return fmt.Errorf("--source-pid %d: %w", f.o.SourcePID, err)
		}
	}
	f.sent = sentStop
	sw, err := stopAndProbe(ctx, f.dst, f.o.Mirror, f.topics, probes)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	endLoad()
	wg.Wait()
	f.stop.Record(sw.answered.Sub(sw.sent), 1)
	for _, l := range loads {
		r.Load.Records += l.records.Load()
		r.Load.Bytes += l.bytes.Load()
		if f.o.SourcePID == 0 { // one that is killed loses what was under way
			r.Load.Errors += l.errors.Load()
			if s, ok := l.lastErr.Load().(string); ok {
				f.lastErr = s
			}
		}
	}
	var why []string
	line := Timeline{StopAnsweredMs: msOf(sw.answered.Sub(sw.sent))}
	for _, p := range sw.probes {
		f.tried++
		if p.err != nil {
			f.failed++
			why = append(why, fmt.Sprintf("%s-%d: %v", p.topic, p.partition, p.err))
			continue
		}
		f.ack.Record(p.firstAck.Sub(sw.sent), 1)
		f.read.Record(p.firstRead.Sub(sw.sent), 1)
		line.FirstAckMs = max(line.FirstAckMs, msOf(p.firstAck.Sub(sw.sent)))
		line.FirstReadMs = max(line.FirstReadMs, msOf(p.firstRead.Sub(sw.sent)))
		// The writers move at the stop: what a living source acknowledges later does not shorten the gap.
		if last, ok := manifests[p.topic].before(sw.sent).last(p.partition); ok && last.Before(p.firstAck) {
			f.gap.Record(p.firstAck.Sub(last), 1)
		}
	}
	if len(why) > 0 {
		return errors.New(strings.Join(why, "; "))
	}
	r.Failover.Timeline = append(r.Failover.Timeline, line)
	f.recoveryPoint(r, sw.resp, manifests, sw.sent)
	return nil
}

// recoveryPoint compares what was acknowledged at the source before the stop with
// what the stop report says was copied.
func (f *failover) recoveryPoint(r *Report, resp *mirrormsg.StopMirrorTopicsResponse, manifests map[string]*manifest, t0 time.Time) {
	rp := &r.Failover.RecoveryPoint
	for i := range resp.Topics {
		m := manifests[resp.Topics[i].Name]
		if m == nil {
			continue
		}
		for _, s := range resp.Topics[i].Stops {
			lost := m.before(t0).lost(s.PartitionIndex, s.LastMirrorOffset)
			rp.Records += lost.Records
			rp.Bytes += lost.Bytes
			rp.Ms = max(rp.Ms, lost.Ms)
		}
	}
}

// before keeps what was acknowledged before t.
func (m *manifest) before(t time.Time) *manifest {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := newManifest(m.topic)
	for p, acks := range m.acks {
		for _, a := range acks {
			if a.at.Before(t) {
				out.acks[p] = append(out.acks[p], a)
			}
		}
	}
	return out
}

// restartPatience is how long the topics may take to mirror again and catch up between two rounds.
const restartPatience = time.Minute

// restart starts the topics again and waits until they mirror and have caught up.
func (f *failover) restart(ctx context.Context) error {
	req := mirrormsg.NewPtrStartMirrorTopicsRequest()
	req.MirrorName = f.o.Mirror
	for _, t := range f.topics {
		rt := mirrormsg.NewStartMirrorTopicsRequestTopic()
		rt.TopicName = t
		req.Topics = append(req.Topics, rt)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.sent = sentStart
	sctx, done := lasting(ctx, changePatience)
	defer done()
	resp, err := req.RequestWith(sctx, f.dst.cl)
	if err != nil {
		return fmt.Errorf("start: %w", f.dst.failed(err))
	}
	errs := []error{refused(resp.ErrorCode, resp.ErrorMessage)}
	for i := range resp.Topics {
		errs = append(errs, refusedTopic(&resp.Topics[i]))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	wctx, cancel := context.WithTimeout(ctx, restartPatience)
	defer cancel()
	err = f.drained(wctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case wctx.Err() == nil || err == nil:
		return err
	}
	lagging, _, err := f.progress(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s after the start %s", restartPatience, lagging)
}

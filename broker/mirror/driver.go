package mirror

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
	"stet/fetcher"
)

// driver takes one partition that this broker leads through its states. Its goroutine exists only while there is
// something to do: post starts it, and it ends when decide says idle and the mailbox is empty.
type driver struct {
	m           *Manager
	topic       string
	id          [16]byte
	index       int32
	incarnation int64
	part        Partition
	lag         *lag
	unseen      atomic.Pointer[unseen] // of the assignment, nil: the topic is not compacted
	stats       partitionStats
	log         *slog.Logger

	ctx    context.Context // ends when this broker does not lead the partition any more
	cancel context.CancelFunc
	idle   sync.WaitGroup // of the goroutine

	mu        sync.Mutex
	closed    bool
	running   bool
	lost      bool // found itself not to be the leader: to be replaced even if it is by now
	mail      mailbox
	last      intent             // as last posted
	interrupt context.CancelFunc // of the present step
	view      view
	changed   chan struct{} // closed and replaced when view changes

	gateMu sync.Mutex
	gate   *Gate // as the partition was told, nil before

	// of the goroutine alone
	in       intent
	known    bool
	readFor  [16]byte // the mirror id that the state was read for
	rec      *mirrormsg.PartitionState
	pairs    map[string]mirrormsg.LastMirrorEpochs // by source cluster id
	ran      bool
	repaired bool // this leader has run a lost barrier again
	retryDue bool
	events   mailbox
	failed   *failure // of the present FAILED state, nil after a restart
	patience int      // failures in a row that are not counted
	// retryTimer ends the waiting of a FAILED partition, nil before the first.
	retryTimer *time.Timer
	fetching   fetching
	// toBump and toReport tell that a stop is on its way to those steps.
	toBump, toReport bumpTicket
	// suspect is a transaction that may have lost its marker at the source, copiedFor the one for which the log was last copied again.
	suspect, copiedFor unended
	// upstreams are the clusters upstream of the topic, as PREPARING found them.
	upstreams []string
}

// mailbox is what has happened since the driver last looked.
type mailbox struct {
	poked     bool // the intent has changed, or a wait is over
	retry     bool
	refreshed bool  // the source's metadata about the topic have changed
	fatal     error // needs an operator, whatever the state
	// identified: the source of a changed configuration was found to be the right cluster
	identified bool
	down       error // the source broker in downBroker cannot be reached
	downAt     int32
	fetch      []fetcher.Event
	keep       bool    // the time of being at the source's end is to be stored
	unended    unended // a transaction of which the source may not have the marker any more,
	unendedBy  uint64  // found by the assignment with this token; 0: none
}

func (b *mailbox) empty() bool {
	return !b.poked && !b.retry && !b.refreshed && !b.identified && b.fatal == nil && b.down == nil && len(b.fetch) == 0 && !b.keep && b.unendedBy == 0
}

// news says whether there is something for a MIRRORING partition to look at.
func (b *mailbox) news() bool {
	return b.refreshed || b.fatal != nil || b.down != nil || len(b.fetch) > 0 || b.keep || b.unendedBy != 0
}

// view is what others may see of a driver.
type view struct {
	state    mirrorstate.State
	mirror   string
	attempt  int16
	errText  string
	pair     pair
	cuts     []mirrormsg.PartitionStateCut
	upstream []string
	report   *StopReport
	caughtMs int64
	stuck    stuck
	// previousStop says that a FAILED partition failed while it was being stopped.
	previousStop bool
}

// fetching is the present assignment.
type fetching struct {
	on     bool
	id     fetcher.ID
	mirror string
	token  uint64
	broker int32
	epoch  int32
	// tries counts assignments in a row that ended without a good fetch.
	tries int
	// minEpoch is the epoch of a batch that was above ours, seen the highest that the source ever named.
	minEpoch, seen int32
}

// partitionStats are counted for the metrics.
type partitionStats struct {
	inBytes, inBatches, retries, gapRecords, cutRecords, epochBumps atomic.Int64
}

func newDriver(m *Manager, t *meta.Topic, index int32, part Partition) *driver {
	d := &driver{
		m: m, topic: t.Name, id: t.ID, index: index, incarnation: t.Incarnation, part: part, lag: newLag(), changed: make(chan struct{}),
		log: m.o.Logger.With("topic", t.Name, "partition", index), view: view{state: mirrorstate.Unknown, pair: noPair}, fetching: fetching{minEpoch: -1, seen: -1},
	}
	d.toBump.b, d.toReport.b = m.bumps, m.reports
	d.ctx, d.cancel = context.WithCancel(m.ctx)
	return d
}

// post puts something into the mailbox and sees to it that somebody reads it.
func (d *driver) post(put func(b *mailbox)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	put(&d.mail)
	if !d.running {
		d.running = true
		d.idle.Go(d.run)
	}
}

func (d *driver) poke() { d.post(func(b *mailbox) { b.poked = true }) }

// postIntent tells the driver that the metadata want something; a step that works for another intent is interrupted.
func (d *driver) postIntent(in intent) {
	d.mu.Lock()
	was := d.last
	d.last = in
	if d.interrupt != nil && (was.mirror != in.mirror || was.mirrorID != in.mirrorID || was.mode != in.mode || was.start != in.start) {
		d.interrupt()
	}
	d.mu.Unlock()
	if was != in {
		d.poke()
	}
}

// close ends the driver: this broker does not lead the partition any more. Nothing is appended once it has returned.
func (d *driver) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.idle.Wait()
	if d.retryTimer != nil {
		d.retryTimer.Stop()
	}
	d.unassign()
	d.m.forgetWaiter(d)
}

func (d *driver) run() {
	for {
		d.mu.Lock()
		mail := d.mail
		d.mail = mailbox{}
		closed := d.closed
		d.mu.Unlock()
		if closed {
			d.leave()
			return
		}
		d.take(mail)
		if !d.refreshIntent() {
			return // somebody closes us
		}
		d.identify()
		a := decide(d.situation())
		if a.kind == actIdle {
			d.leave()
			d.publish()
			d.mu.Lock()
			if d.mail.empty() {
				d.running = false
				d.mu.Unlock()
				return
			}
			d.mu.Unlock()
			continue
		}
		d.step(a)
		d.publish()
	}
}

// leave takes back what the driver has announced.
func (d *driver) leave() {
	d.toBump.leave()
	d.toReport.leave()
}

// take sorts new mail to what is not done yet.
func (d *driver) take(mail mailbox) {
	d.retryDue = d.retryDue || mail.retry
	d.events.refreshed = d.events.refreshed || mail.refreshed
	if mail.fatal != nil {
		d.events.fatal = mail.fatal
	}
	if mail.down != nil {
		d.events.down, d.events.downAt = mail.down, mail.downAt
	}
	d.events.fetch = append(d.events.fetch, mail.fetch...)
	d.events.keep = d.events.keep || mail.keep
	if mail.unendedBy != 0 {
		d.events.unended, d.events.unendedBy = mail.unended, mail.unendedBy
	}
}

// refreshIntent reads what the metadata want now. It reports false when the partition is not ours any more.
func (d *driver) refreshIntent() bool {
	img := d.m.o.Image()
	t := img.TopicByID(d.id)
	if t == nil || t.Incarnation != d.incarnation || int(d.index) >= len(t.Partitions) || t.Partitions[d.index].Leader != d.m.o.Node {
		d.leave()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running, d.lost = false, true
		return false
	}
	d.in = intentOf(img, t, d.index)
	if d.known && d.in.mirrorID != d.readFor {
		d.known, d.ran = false, false
	}
	return true
}

func (d *driver) situation() situation {
	s := situation{
		intent: d.in, known: d.known, state: mirrorstate.Unknown, previous: mirrorstate.Unknown, startOffset: -1, retryDue: d.retryDue, ran: d.ran,
		events: d.events.news(), barrierEnd: d.in.barrierEnd, logEnd: d.part.LogEndOffset(), open: d.isOpen(),
	}
	if d.known && d.rec != nil {
		s.state, s.previous, s.startOffset = mirrorstate.State(d.rec.State), mirrorstate.State(d.rec.PreviousState), d.rec.StartOffset
		if s.barrierEnd < 0 && s.state == mirrorstate.Stopped {
			s.barrierEnd = d.storedBarrierEnd()
		}
	}
	if d.repaired {
		s.barrierEnd = min(s.barrierEnd, s.logEnd)
	}
	if s.state == mirrorstate.Mirroring && !d.fetching.on {
		s.ran = false // an assignment that was interrupted half-way is made anew
	}
	return s
}

func (d *driver) state() mirrorstate.State {
	if !d.known || d.rec == nil {
		return mirrorstate.Unknown
	}
	return mirrorstate.State(d.rec.State)
}

// step carries out one action and deals with its error.
func (d *driver) step(a action) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	d.mu.Lock()
	d.interrupt = cancel
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.interrupt = nil
		d.mu.Unlock()
	}()
	var err error
	if fatal := d.events.fatal; fatal != nil && d.state().Running() && d.in.mode == meta.MirrorActive {
		d.events.fatal = nil
		err = fatal
	} else {
		err = d.do(ctx, a)
	}
	if err != nil && a.kind == actEvents {
		d.ran = false // the rest of the events was not looked at; a new assignment tells again what still holds
	}
	switch {
	case err == nil:
	case d.ctx.Err() != nil:
	case errors.Is(err, errReread):
		d.unassign() // whether the state that is stored still fetches is not known
		d.known, d.ran = false, false
	case ctx.Err() != nil:
	case errors.Is(err, errSuperseded):
		_ = sleep(ctx, supersededPause) // what supersedes it is on its way
	default:
		d.fail(ctx, classify(err))
	}
}

func (d *driver) do(ctx context.Context, a action) error {
	switch a.kind {
	case actRead:
		return d.read(ctx)
	case actWrite:
		if a.to == mirrorstate.Stopping {
			d.toBump.come()
		}
		return d.transition(a.to)
	case actRun:
		return d.runState(ctx)
	case actEvents:
		return d.handleEvents(ctx)
	case actRepair:
		return d.repair(ctx)
	case actReport:
		return d.reportBarrier(ctx)
	case actOpen:
		d.setGate(Gate{Kind: GateOpen})
		return nil
	}
	return nil
}

// supersededPause keeps a step that finds itself superseded before the metadata show it from spinning.
const supersededPause = 10 * time.Millisecond

// runState runs the side effect of the present state.
func (d *driver) runState(ctx context.Context) error {
	var err error
	next := mirrorstate.Unknown
	switch d.state() {
	case mirrorstate.Preparing:
		err, next = d.prepare(ctx), mirrorstate.Mirroring
	case mirrorstate.EpochFencing:
		err, next = d.fence(ctx), mirrorstate.Mirroring
	case mirrorstate.ULERecovery:
		err, next = d.recover(ctx), mirrorstate.Mirroring
	case mirrorstate.Mirroring:
		err = d.assign(ctx)
	case mirrorstate.Pausing, mirrorstate.Paused:
		d.unassign()
		d.lag.pause()
	case mirrorstate.Stopping:
		return d.barrier(ctx)
	}
	if err != nil {
		return err
	}
	if next != mirrorstate.Unknown {
		return d.transition(next)
	}
	d.ran = true
	return nil
}

// fail makes the partition FAILED and sees to its return.
func (d *driver) fail(ctx context.Context, f *failure) {
	s := d.state()
	if s == mirrorstate.Unknown || s == mirrorstate.Stopped || s == mirrorstate.Failed {
		// Nothing may be stored (a barrier that is repaired, a state that cannot be read): try again soon.
		d.log.Error("mirror partition", "mirror", d.in.mirror, "state", s.String(), "err", f.err)
		_ = sleep(ctx, backoff(Settings{RetryInitial: 100 * time.Millisecond, RetryMax: 5 * time.Second}, d.patience)) // an interruption is seen by the loop
		d.patience++
		return
	}
	d.unassign()
	attempt := d.rec.RetryAttempt
	if f.final() {
		attempt = -1
	}
	err := d.write(mirrorstate.Failed, func(r *mirrormsg.PartitionState) {
		text := f.Error()
		r.ErrorMessage, r.RetryAttempt = &text, attempt
		r.StartOffset = max(r.StartOffset, d.in.start)
	})
	if err != nil {
		if errors.Is(err, errReread) {
			d.known = false
		}
		return
	}
	d.failed, d.ran, d.retryDue, d.events = f, false, false, mailbox{}
	d.log.Warn("mirror partition failed", "mirror", d.in.mirror, "state", s.String(), "attempt", attempt, "err", f.err)
	d.scheduleRetry(f, int(attempt))
}

// scheduleRetry decides what ends the waiting of a FAILED partition.
func (d *driver) scheduleRetry(f *failure, attempt int) {
	settings := d.m.o.Settings()
	switch f.kind {
	case failCounted:
		if attempt < settings.RetryAttempts {
			d.retryAfter(backoff(settings, attempt))
		}
	case failPatient:
		settings.RetryMax = min(settings.RetryMax, maxPatience)
		d.retryAfter(backoff(settings, d.patience))
		d.patience++
	case failSource:
		if up := d.m.upstream(d.in.mirror); up != nil {
			up.await(d, f.broker)
		}
	}
}

// retryAfter replaces what an earlier failure has scheduled.
func (d *driver) retryAfter(after time.Duration) {
	if d.retryTimer != nil {
		d.retryTimer.Stop()
	}
	d.retryTimer = time.AfterFunc(after, func() { d.post(func(b *mailbox) { b.retry = true }) })
}

// setGate tells the partition what to do with clients' appends. It is opened only if the metadata want that at this very
// moment: shut may have closed it since the step began.
func (d *driver) setGate(g Gate) {
	d.gateMu.Lock()
	defer d.gateMu.Unlock()
	if g.Kind == GateOpen {
		img := d.m.o.Image()
		if t := img.TopicByID(d.id); t == nil || t.Incarnation != d.incarnation || !intentOf(img, t, d.index).mayOpen() {
			return
		}
	}
	if d.gate != nil && *d.gate == g {
		return
	}
	d.part.SetGate(g)
	d.gate = &g
}

// shut closes an open gate in the moment in which the metadata say so.
func (d *driver) shut(mirror string) {
	d.gateMu.Lock()
	defer d.gateMu.Unlock()
	if d.gate == nil || d.gate.Kind == GateOpen {
		d.gate = &Gate{Kind: GateUnknown, Mirror: mirror}
		d.part.SetGate(*d.gate)
	}
}

func (d *driver) isOpen() bool {
	d.gateMu.Lock()
	defer d.gateMu.Unlock()
	return d.gate != nil && d.gate.Kind == GateOpen
}

// publish shows the present state to others.
func (d *driver) publish() {
	v := view{state: d.state(), mirror: d.in.mirror, pair: d.ownPair(), caughtMs: -1}
	if !d.known && d.in.mode == meta.MirrorStopped && d.in.barrierEnd >= 0 {
		v.state = mirrorstate.Stopped // the metadata say so
	}
	if d.rec != nil && d.known {
		v.attempt, v.cuts, v.upstream, v.caughtMs = d.rec.RetryAttempt, d.rec.Cuts, d.rec.UpstreamClusterIDs, d.rec.CaughtUpMs
		v.previousStop = mirrorstate.State(d.rec.PreviousState) == mirrorstate.Stopping
		if d.rec.ErrorMessage != nil && v.state == mirrorstate.Failed {
			v.errText = *d.rec.ErrorMessage
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.state == mirrorstate.Stopped || v.state == mirrorstate.Unknown {
		v.report = d.view.report
	}
	d.view = v
	close(d.changed)
	d.changed = make(chan struct{})
}

// look returns what others may see and a channel that is closed when it changes.
func (d *driver) look() (view, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view, d.changed
}

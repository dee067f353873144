package mirror

import (
	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
)

// actionKind is what a driver does next.
type actionKind int8

const (
	// actIdle: nothing until an event.
	actIdle actionKind = iota
	// actRead: read the stored state.
	actRead
	// actWrite: persist the state in action.to.
	actWrite
	// actRun: run the side effect of the present state.
	actRun
	// actEvents: look at what the fetcher reported.
	actEvents
	// actRepair: the log has lost the end of its stop barrier: run it again from step 3.
	actRepair
	// actReport: tell the controller where the barrier ends.
	actReport
	// actOpen: let clients append.
	actOpen
)

type action struct {
	kind actionKind
	to   mirrorstate.State
}

// situation is all that the next action depends on.
type situation struct {
	intent intent
	// known says that the stored state has been read; state and previous are its.
	known    bool
	state    mirrorstate.State
	previous mirrorstate.State
	// startOffset is the start that the stored state follows.
	startOffset int64
	// retryDue says that a FAILED partition may be tried again; never, for one that needs an operator.
	retryDue bool
	// ran says that the side effect of the present state has been run by this leader.
	ran bool
	// events says that the fetcher has reported something.
	events bool
	// barrierEnd is where the last barrier ends by metadata or stored state, -1 for none; logEnd the log's end.
	barrierEnd int64
	logEnd     int64
	// open says that the gate is open.
	open bool
}

// decide is the state machine of SPEC section 3 without its side effects. It is pure.
func decide(s situation) action {
	// What the metadata say about a barrier does not need the stored state (rule g).
	if s.intent.mode == meta.NotMirrored || s.intent.mode == meta.MirrorStopped && s.intent.barrierEnd >= 0 {
		return stopped(s)
	}
	if !s.known {
		return action{kind: actRead}
	}
	newStart := s.intent.start > s.startOffset
	switch s.intent.mode {
	case meta.MirrorStopping, meta.MirrorStopped:
		return decideStop(s)
	case meta.MirrorPaused:
		return decidePause(s, newStart)
	}
	switch s.state {
	case mirrorstate.Unknown:
		return write(mirrorstate.Preparing)
	case mirrorstate.Stopped:
		if newStart {
			return write(mirrorstate.Preparing)
		}
		return action{}
	case mirrorstate.Failed:
		switch {
		case newStart:
			return write(mirrorstate.Preparing)
		case s.retryDue:
			return write(s.previous)
		}
		return action{}
	case mirrorstate.Pausing:
		return write(mirrorstate.Paused)
	case mirrorstate.Paused:
		return write(s.previous)
	}
	return run(s)
}

func decideStop(s situation) action {
	switch s.state {
	case mirrorstate.Stopped:
		if s.intent.barrierEnd < 0 && s.logEnd >= s.barrierEnd {
			return action{kind: actReport}
		}
		return stopped(s)
	case mirrorstate.Stopping:
		return run(s)
	case mirrorstate.Failed:
		if s.previous == mirrorstate.Stopping && !s.retryDue {
			return action{}
		}
	}
	return write(mirrorstate.Stopping)
}

func decidePause(s situation, newStart bool) action {
	switch s.state {
	case mirrorstate.Unknown:
		return write(mirrorstate.Preparing)
	case mirrorstate.Stopped:
		if newStart {
			return write(mirrorstate.Preparing)
		}
		return action{}
	case mirrorstate.Stopping:
		return run(s) // a stop that was begun is finished
	case mirrorstate.Paused:
		if s.ran {
			return action{}
		}
		return action{kind: actRun}
	case mirrorstate.Pausing:
		if !s.ran {
			return action{kind: actRun}
		}
		return write(mirrorstate.Paused)
	}
	return write(mirrorstate.Pausing)
}

func stopped(s situation) action {
	switch {
	case s.logEnd < s.barrierEnd:
		return action{kind: actRepair}
	case !s.open:
		return action{kind: actOpen}
	}
	return action{}
}

func run(s situation) action {
	switch {
	case !s.ran:
		return action{kind: actRun}
	case s.events:
		return action{kind: actEvents}
	}
	return action{}
}

func write(to mirrorstate.State) action { return action{kind: actWrite, to: to} }

package mirror

import (
	"testing"

	"pgregory.net/rapid"

	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
)

func TestDecide(t *testing.T) {
	active, paused, stopping, stopd := meta.MirrorActive, meta.MirrorPaused, meta.MirrorStopping, meta.MirrorStopped
	for _, tc := range []struct {
		name string
		mode meta.MirrorTopicState
		s    situation
		want action
	}{
		{"nothing is known", active, situation{}, action{kind: actRead}},
		{"first start", active, situation{known: true, state: mirrorstate.Unknown}, write(mirrorstate.Preparing)},
		{"started again", active, situation{known: true, state: mirrorstate.Stopped, intent: intent{start: 9}, startOffset: 4}, write(mirrorstate.Preparing)},
		{"stopped stays stopped without a start", active, situation{known: true, state: mirrorstate.Stopped, intent: intent{start: 4}, startOffset: 4}, action{}},
		{"failed waits", active, situation{known: true, state: mirrorstate.Failed, previous: mirrorstate.Mirroring}, action{}},
		{"failed is tried again", active, situation{known: true, state: mirrorstate.Failed, previous: mirrorstate.EpochFencing, retryDue: true}, write(mirrorstate.EpochFencing)},
		{"failed is started again", active, situation{known: true, state: mirrorstate.Failed, previous: mirrorstate.Mirroring, intent: intent{start: 9}, startOffset: 4}, write(mirrorstate.Preparing)},
		{"side effect", active, situation{known: true, state: mirrorstate.ULERecovery}, action{kind: actRun}},
		{"mirroring goes on", active, situation{known: true, state: mirrorstate.Mirroring, ran: true}, action{}},
		{"mirroring hears", active, situation{known: true, state: mirrorstate.Mirroring, ran: true, events: true}, action{kind: actEvents}},
		{"resume", active, situation{known: true, state: mirrorstate.Paused, previous: mirrorstate.Mirroring}, write(mirrorstate.Mirroring)},
		{"pause", paused, situation{known: true, state: mirrorstate.Mirroring, ran: true}, write(mirrorstate.Pausing)},
		{"pause of failed", paused, situation{known: true, state: mirrorstate.Failed}, write(mirrorstate.Pausing)},
		{"pausing removes first", paused, situation{known: true, state: mirrorstate.Pausing}, action{kind: actRun}},
		{"paused after that", paused, situation{known: true, state: mirrorstate.Pausing, ran: true}, write(mirrorstate.Paused)},
		{"stop right after start", stopping, situation{known: true, state: mirrorstate.Unknown}, write(mirrorstate.Stopping)},
		{"stop of failed", stopping, situation{known: true, state: mirrorstate.Failed, previous: mirrorstate.Preparing}, write(mirrorstate.Stopping)},
		{"failed stop waits", stopping, situation{known: true, state: mirrorstate.Failed, previous: mirrorstate.Stopping}, action{}},
		{"barrier", stopping, situation{known: true, state: mirrorstate.Stopping}, action{kind: actRun}},
		{"barrier end is reported", stopping, situation{known: true, state: mirrorstate.Stopped, barrierEnd: 5, logEnd: 5, intent: intent{barrierEnd: -1}}, action{kind: actReport}},
		{"lost barrier before the report", stopping, situation{known: true, state: mirrorstate.Stopped, barrierEnd: 5, logEnd: 4, intent: intent{barrierEnd: -1}}, action{kind: actRepair}},
		{"open without reading", stopd, situation{barrierEnd: 5, logEnd: 5, intent: intent{barrierEnd: 5}}, action{kind: actOpen}},
		{"lost barrier", stopd, situation{barrierEnd: 5, logEnd: 4, intent: intent{barrierEnd: 5}}, action{kind: actRepair}},
		{"stopped and open", stopd, situation{barrierEnd: 5, logEnd: 6, open: true, intent: intent{barrierEnd: 5}}, action{}},
		{"mirror deleted", meta.NotMirrored, situation{barrierEnd: 5, logEnd: 5, open: true}, action{}},
		{"mirror deleted, barrier lost", meta.NotMirrored, situation{barrierEnd: 5, logEnd: 3}, action{kind: actRepair}},
	} {
		tc.s.intent.mode = tc.mode
		if got := decide(tc.s); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// TestDecideIsLegalAndEnds: whatever is stored, every write is a legal transition, and with side effects that
// succeed the partition comes to rest where the intent wants it.
func TestDecideIsLegalAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := situation{
			intent: intent{
				mode:  rapid.SampledFrom([]meta.MirrorTopicState{meta.MirrorActive, meta.MirrorPaused, meta.MirrorStopping}).Draw(t, "mode"),
				start: rapid.Int64Range(0, 2).Draw(t, "start"), barrierEnd: -1,
			},
			known: true, state: rapid.SampledFrom(mirrorstate.All[:]).Draw(t, "state"),
			previous:    rapid.SampledFrom([]mirrorstate.State{mirrorstate.Preparing, mirrorstate.EpochFencing, mirrorstate.Mirroring, mirrorstate.ULERecovery}).Draw(t, "previous"),
			startOffset: rapid.Int64Range(0, 2).Draw(t, "startOffset"), retryDue: true, barrierEnd: -1,
		}
		if (s.state == mirrorstate.Stopped || s.state == mirrorstate.Stopping) && s.intent.mode != meta.MirrorStopping {
			s.startOffset = s.intent.start - 1
		}
		if s.state == mirrorstate.Stopped {
			s.barrierEnd, s.logEnd = 7, 7
		}
		for range 20 {
			a := decide(s)
			switch a.kind {
			case actIdle:
				want := map[meta.MirrorTopicState]mirrorstate.State{meta.MirrorActive: mirrorstate.Mirroring, meta.MirrorPaused: mirrorstate.Paused, meta.MirrorStopping: mirrorstate.Stopped}[s.intent.mode]
				if s.state != want || s.intent.mode == meta.MirrorStopping && !s.open {
					t.Fatalf("rests in %v with intent %v", s.state, s.intent.mode)
				}
				return
			case actWrite:
				if !mirrorstate.AllowedIn(s.state, a.to, mirrorstate.Context{Previous: s.previous, NewStart: s.intent.start > s.startOffset}) {
					t.Fatalf("%v -> %v (previous %v)", s.state, a.to, s.previous)
				}
				s.previous = mirrorstate.PreviousFor(s.state, a.to, s.previous)
				if a.to == mirrorstate.Preparing {
					s.startOffset = s.intent.start
				}
				s.state, s.ran = a.to, false
			case actRun:
				s.ran = true
				switch s.state {
				case mirrorstate.Preparing, mirrorstate.EpochFencing, mirrorstate.ULERecovery:
					s.state, s.ran = mirrorstate.Mirroring, false
				case mirrorstate.Stopping:
					s.state, s.ran, s.barrierEnd, s.logEnd = mirrorstate.Stopped, false, 7, 7
				}
			case actReport:
				s.intent.barrierEnd = s.barrierEnd
			case actOpen:
				s.open = true
			default:
				t.Fatalf("unexpected action %+v in %v", a, s.state)
			}
		}
		t.Fatalf("never rests: %v", s.state)
	})
}

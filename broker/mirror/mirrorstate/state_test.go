package mirrorstate

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	for _, s := range All {
		back, err := Parse(s.String())
		if err != nil || back != s || !s.Valid() {
			t.Errorf("%d: %q reads as %v, %v", int8(s), s, back, err)
		}
	}
	if _, err := Parse("BROKEN"); err == nil {
		t.Error("an unknown name was accepted")
	}
	if State(9).Valid() || State(9).String() != "STATE(9)" || Unknown.Storable() {
		t.Error("state 9 is known, or UNKNOWN can be stored")
	}
}

// The table again, as sentences of SPEC section 3.
func TestAllowed(t *testing.T) {
	for _, from := range All {
		for _, to := range All {
			running := []State{Preparing, EpochFencing, Mirroring, ULERecovery}
			want := from == to && to != Unknown ||
				to == Preparing && (from == Unknown || from == Stopped || from == Mirroring || from == Failed || from == Paused) ||
				to == Mirroring && (from == Preparing || from == EpochFencing || from == ULERecovery || from == Paused || from == Failed) ||
				(to == EpochFencing || to == ULERecovery) && (from == Mirroring || from == Paused || from == Failed) ||
				to == Pausing && (slices.Contains(running, from) || from == Failed) ||
				to == Paused && (from == Pausing || from == Failed) ||
				to == Stopping && from != Stopped ||
				to == Stopped && from == Stopping ||
				to == Failed && from != Stopped && from != Unknown
			if got := Allowed(from, to); got != want {
				t.Errorf("%v -> %v: %v, want %v", from, to, got, want)
			}
		}
	}
}

// Random walks keep the promises that the rest of the mirror builds on.
func TestWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, previous := Unknown, Unknown
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := Context{Previous: previous, LogEmpty: rapid.Bool().Draw(t, "empty"), NewStart: rapid.Bool().Draw(t, "start")}
			to := rapid.SampledFrom(All[:]).Draw(t, "to")
			if !AllowedIn(state, to, c) {
				continue
			}
			if state == Stopped && to != Stopped && to != Preparing {
				t.Fatalf("STOPPED left to %v without a start", to)
			}
			if to == Unknown {
				t.Fatal("UNKNOWN would be stored")
			}
			if to == Stopped && state != Stopping && state != Stopped {
				t.Fatalf("%v became STOPPED without the barrier", state)
			}
			previous = PreviousFor(state, to, previous)
			state = to
			if (state == Pausing || state == Paused) && !previous.Running() {
				t.Fatalf("%v has the previous state %v", state, previous)
			}
			if state == Failed && (previous == Failed || previous == Unknown || previous == Stopped) {
				t.Fatalf("FAILED has the previous state %v", previous)
			}
			// A failover never waits: from everywhere STOPPED can be reached in two steps.
			if state != Stopped && !AllowedIn(state, Stopping, c) {
				t.Fatalf("%v cannot be stopped", state)
			}
		}
	})
}

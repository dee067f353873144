package mirrorstate

import "slices"

// table holds the transitions; a state to itself is always allowed (it re-runs
// the side effect), except Unknown, which is never stored.
var table = map[State][]State{
	Unknown:      {Preparing, Stopping},
	Stopped:      {Preparing},
	Preparing:    {Mirroring, Pausing, Stopping, Failed},
	EpochFencing: {Mirroring, Pausing, Stopping, Failed},
	ULERecovery:  {Mirroring, Pausing, Stopping, Failed},
	Mirroring:    {EpochFencing, ULERecovery, Preparing, Pausing, Stopping, Failed},
	Pausing:      {Paused, Stopping, Failed},
	Paused:       {Preparing, EpochFencing, Mirroring, ULERecovery, Stopping, Failed},
	Stopping:     {Stopped, Failed},
	Failed:       {Preparing, EpochFencing, Mirroring, ULERecovery, Pausing, Paused, Stopping},
}

// Allowed says whether SPEC section 3 knows the transition. Some of them need
// more than the two states: see Context.
func Allowed(from, to State) bool {
	if from == to {
		return from.Storable()
	}
	return slices.Contains(table[from], to)
}

// Context is what decides transitions beyond the two states.
type Context struct {
	// Previous is the stored previous state: of FAILED the state that failed, of
	// PAUSING and PAUSED the state before the pause (of a paused FAILED partition, FAILED's own previous state).
	Previous State
	// LogEmpty says that the local log holds nothing.
	LogEmpty bool
	// NewStart says that mirror.start is newer than the stored StartOffset.
	NewStart bool
}

// AllowedIn is Allowed with the conditions: MIRRORING goes back to PREPARING only
// with an empty log, PAUSED and FAILED only to their previous state, FAILED to
// PREPARING also on a new start.
func AllowedIn(from, to State, c Context) bool {
	if !Allowed(from, to) {
		return false
	}
	if from == to {
		return true
	}
	switch from {
	case Mirroring:
		return to != Preparing || c.LogEmpty
	case Paused:
		return to == Stopping || to == Failed || to == c.Previous
	case Failed:
		return to == Stopping || to == Pausing || to == c.Previous || to == Preparing && c.NewStart
	}
	return true
}

// PreviousFor is what a record that moves from one state to another keeps as
// PreviousState, given what is stored now. Where the state before a pause got
// lost (the pause itself failed), it is PREPARING, which is always safe.
func PreviousFor(from, to, stored State) State {
	switch {
	case from == to:
		return stored
	case to == Failed:
		return from
	case to == Pausing && from != Failed:
		return from
	case to == Pausing, to == Paused:
		if stored.Running() {
			return stored
		}
		return Preparing
	}
	return Unknown
}

package mirrorstate

import "fmt"

// State is the byte that is stored and sent.
type State int8

// The states.
const (
	Preparing    State = 0
	EpochFencing State = 1
	Mirroring    State = 2
	Pausing      State = 3
	Paused       State = 4
	Stopping     State = 5
	Stopped      State = 6
	Failed       State = 7
	ULERecovery  State = 8
	// Unknown means that there is no record yet. It is never stored.
	Unknown State = 16
)

// All lists the states, Unknown last.
var All = [...]State{Preparing, EpochFencing, Mirroring, Pausing, Paused, Stopping, Stopped, Failed, ULERecovery, Unknown}

var names = map[State]string{
	Preparing: "PREPARING", EpochFencing: "EPOCH_FENCING", Mirroring: "MIRRORING", Pausing: "PAUSING", Paused: "PAUSED",
	Stopping: "STOPPING", Stopped: "STOPPED", Failed: "FAILED", ULERecovery: "ULE_RECOVERY", Unknown: "UNKNOWN",
}

func (s State) String() string {
	if n, ok := names[s]; ok {
		return n
	}
	return fmt.Sprintf("STATE(%d)", int8(s))
}

// Parse reads a name as String writes it.
func Parse(name string) (State, error) {
	for s, n := range names {
		if n == name {
			return s, nil
		}
	}
	return Unknown, fmt.Errorf("mirror partition state %q is not known", name)
}

// Valid says whether the byte is one of the states, Unknown included.
func (s State) Valid() bool { _, ok := names[s]; return ok }

// Storable says whether a record may hold the state.
func (s State) Storable() bool { return s.Valid() && s != Unknown }

// Fetching says whether a fetcher may run.
func (s State) Fetching() bool { return s == Mirroring }

// Writable says whether others than the mirror may append.
func (s State) Writable() bool { return s == Stopped }

// Running are the states that a start leads to and that work goes on in.
func (s State) Running() bool {
	return s == Preparing || s == EpochFencing || s == Mirroring || s == ULERecovery
}

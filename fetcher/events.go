package fetcher

import "fmt"

// EventKind says what happened to a partition.
type EventKind int8

// Kinds of events. After a halting one the partition is no longer fetched until it is removed and added again.
const (
	// EventEpochAhead (halts): the source's batch at Offset has Epoch above the local leader epoch; it
	// was not appended (SPEC 4.2, reactive).
	EventEpochAhead EventKind = iota + 1
	// EventEpochNear: an appended batch has Epoch above the local leader epoch minus 3 (SPEC 4.2, proactive).
	EventEpochNear
	// EventDiverging (halts): the source says that Epoch ends at Offset there, before our log end.
	EventDiverging
	// EventOutOfRange (halts): the source does not have Offset.
	EventOutOfRange
	// EventLeader (halts): Leader and Epoch lead the partition now, or -1 where the source did not say;
	// Host and Port where it named the endpoint.
	EventLeader
	// EventTopic (halts): the source does not know the topic id, the name or the partition, or they do not belong together.
	EventTopic
	// EventUnauthorized (halts): a right is missing at the source.
	EventUnauthorized
	// EventCorrupt (halts): the batch at Offset is malformed, fails its CRC, is of an old format or out of order.
	EventCorrupt
	// EventAppend (halts): the local log refused the batches at Offset.
	EventAppend
	// EventRetry: the source answered with an error that passes; the partition is tried again after the back-off.
	EventRetry
	// EventFetched: the first good answer for this assignment.
	EventFetched
)

var kindNames = [...]string{
	EventEpochAhead: "epoch ahead", EventEpochNear: "epoch near", EventDiverging: "diverging", EventOutOfRange: "out of range",
	EventLeader: "leader", EventTopic: "topic", EventUnauthorized: "unauthorized", EventCorrupt: "corrupt", EventAppend: "append",
	EventRetry: "retry", EventFetched: "fetched",
}

// String implements fmt.Stringer.
func (k EventKind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", int8(k))
}

// Event is something that the fetcher cannot decide. Which fields are set depends on the kind.
type Event struct {
	Kind   EventKind
	Mirror string
	ID     ID
	Token  uint64
	Broker int32 // that was fetched from
	Offset int64
	Epoch  int32
	Leader int32
	Host   string
	Port   int32
	Err    error // what an operator should read
}

// Events receives what happens. The methods are called from the loops and must not block; they may
// not call the Manager, whose methods wait for the loops.
type Events interface {
	// Partition reports an event of one partition.
	Partition(e Event)
	// Broker reports that a source broker cannot be reached (err says why) or can be reached again (nil);
	// only changes of what was reported before.
	Broker(mirror string, broker int32, err error)
}

package frame

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// Versions of Fetch responses that FetchWalker reads.
const (
	MinFetchVersion = 4
	MaxFetchVersion = 18
)

// ErrFetchResponse says that a Fetch response is malformed.
var ErrFetchResponse = errors.New("malformed fetch response")

// FetchPartition is one partition of a Fetch response. Topic and Records are sub-slices of the
// response and live as long as it does.
type FetchPartition struct {
	TopicID              [16]byte // version 13 and newer
	Topic                []byte   // before version 13
	Partition            int32
	ErrorCode            int16
	HighWatermark        int64
	LastStableOffset     int64
	LogStartOffset       int64 // -1 before version 5
	PreferredReadReplica int32 // -1 before version 11
	Records              []byte
	// DivergingEpoch (tag 0) has epoch and end offset -1 where absent.
	DivergingEpoch struct {
		Epoch     int32
		EndOffset int64
	}
	// CurrentLeader (tag 1) has id and epoch -1 where absent.
	CurrentLeader struct {
		ID    int32
		Epoch int32
	}
}

// FetchEndpoint is a broker of a Fetch response's NodeEndpoints (KIP-951). Host is a sub-slice of
// the response.
type FetchEndpoint struct {
	NodeID int32
	Host   []byte
	Port   int32
}

// FetchWalker reads the body of a Fetch response from front to back:
//
//	w.Reset(body, version)
//	for w.Next(&p) { ... }
//	err := w.Err()
//
// Throttle, ErrorCode and SessionID are known after Reset; Endpoints only after Next has returned
// false, because they stand at the end of the response. It allocates nothing. Counts in the
// response are never trusted: the walk ends where the bytes do.
type FetchWalker struct {
	ThrottleMillis int32
	ErrorCode      int16
	SessionID      int32

	version    int16
	flexible   bool
	r          kbin.Reader
	topics     int32 // left
	partitions int32 // left of the present topic
	inTopic    bool
	topicID    [16]byte
	topic      []byte
	endpoints  []byte
	ended      bool
	err        error
}

// Reset starts a walk. An error, like those that Err returns, wraps ErrFetchResponse.
func (w *FetchWalker) Reset(body []byte, version int16) error {
	*w = FetchWalker{version: version, flexible: version >= 12, r: kbin.Reader{Src: body}}
	if version < MinFetchVersion || version > MaxFetchVersion {
		w.ended = true
		w.err = fmt.Errorf("%w: version %d", ErrFetchResponse, version)
		return w.err
	}
	w.ThrottleMillis = w.r.Int32()
	if version >= 7 {
		w.ErrorCode = w.r.Int16()
		w.SessionID = w.r.Int32()
	}
	w.topics = w.arrayLen()
	w.check("header")
	return w.err
}

// Next reads the next partition into p and reports whether there was one.
func (w *FetchWalker) Next(p *FetchPartition) bool {
	for !w.ended {
		if w.inTopic && w.partitions > 0 {
			w.partitions--
			w.partition(p)
			return w.check("partition")
		}
		if w.inTopic {
			w.inTopic = false
			if w.flexible {
				skipTags(&w.r)
			}
		}
		if w.topics <= 0 {
			w.end()
			return false
		}
		w.topics--
		w.inTopic = true
		if w.version >= 13 {
			w.topicID = w.r.Uuid()
		} else {
			w.topic = w.bytes(w.strLen())
		}
		w.partitions = w.arrayLen()
		if !w.check("topic") {
			return false
		}
	}
	return false
}

// Err returns what ended the walk early, or nil.
func (w *FetchWalker) Err() error { return w.err }

// Endpoint returns the broker with that id from NodeEndpoints, which is known once Next has returned false.
func (w *FetchWalker) Endpoint(id int32) (FetchEndpoint, bool) {
	r := kbin.Reader{Src: w.endpoints}
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		e := FetchEndpoint{NodeID: r.Int32()}
		e.Host = r.Span(int(r.Uvarint()) - 1)
		e.Port = r.Int32()
		if l := int(r.Uvarint()) - 1; l >= 0 {
			r.Span(l) // rack
		}
		skipTags(&r)
		if r.Ok() && e.NodeID == id {
			return e, true
		}
	}
	return FetchEndpoint{}, false
}

func (w *FetchWalker) partition(p *FetchPartition) {
	r := &w.r
	*p = FetchPartition{TopicID: w.topicID, Topic: w.topic, LogStartOffset: -1, PreferredReadReplica: -1}
	p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = -1, -1
	p.CurrentLeader.ID, p.CurrentLeader.Epoch = -1, -1
	p.Partition = r.Int32()
	p.ErrorCode = r.Int16()
	p.HighWatermark = r.Int64()
	p.LastStableOffset = r.Int64()
	if w.version >= 5 {
		p.LogStartOffset = r.Int64()
	}
	for n := w.arrayLen(); n > 0 && r.Ok(); n-- { // aborted transactions: rebuilt from the markers
		r.Span(16)
		if w.flexible {
			skipTags(r)
		}
	}
	if w.version >= 11 {
		p.PreferredReadReplica = r.Int32()
	}
	if w.flexible {
		p.Records = w.nullable(int(r.Uvarint()) - 1)
		w.partitionTags(p)
	} else {
		p.Records = w.nullable(int(r.Int32()))
	}
}

func (w *FetchWalker) partitionTags(p *FetchPartition) {
	r := &w.r
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag := r.Uvarint()
		in := kbin.Reader{Src: r.Span(int(r.Uvarint()))}
		switch tag {
		case 0:
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = in.Int32(), in.Int64()
			skipTags(&in)
		case 1:
			p.CurrentLeader.ID, p.CurrentLeader.Epoch = in.Int32(), in.Int32()
			skipTags(&in)
		case 2: // snapshot id, of the metadata topic only
			in.Int64()
			in.Int32()
			skipTags(&in)
		}
		if !in.Ok() {
			w.fail("tagged field")
		}
	}
}

func (w *FetchWalker) end() {
	w.ended = true
	if !w.flexible {
		w.check("end")
		return
	}
	r := &w.r
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag := r.Uvarint()
		b := r.Span(int(r.Uvarint()))
		if tag == 0 {
			w.endpoints = b
			w.checkEndpoints()
		}
	}
	w.check("end")
}

func (w *FetchWalker) checkEndpoints() {
	r := kbin.Reader{Src: w.endpoints}
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		r.Int32()
		r.Span(int(r.Uvarint()) - 1)
		r.Int32()
		if l := int(r.Uvarint()) - 1; l >= 0 {
			r.Span(l)
		}
		skipTags(&r)
	}
	if !r.Ok() {
		w.fail("endpoints")
	}
}

func (w *FetchWalker) arrayLen() int32 {
	if w.flexible {
		return w.r.CompactArrayLen()
	}
	return w.r.ArrayLen()
}

func (w *FetchWalker) strLen() int {
	if w.flexible {
		return int(w.r.Uvarint()) - 1
	}
	return int(w.r.Int16())
}

func (w *FetchWalker) bytes(n int) []byte { return w.r.Span(n) }

func (w *FetchWalker) nullable(n int) []byte {
	if n < 0 {
		return nil
	}
	return w.r.Span(n)
}

// check ends the walk if the bytes did not suffice.
func (w *FetchWalker) check(what string) bool {
	if w.err == nil && !w.r.Ok() {
		w.fail(what)
	}
	if w.err != nil {
		w.ended = true
	}
	return w.err == nil
}

func (w *FetchWalker) fail(what string) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: version %d: %s", ErrFetchResponse, w.version, what)
	}
}

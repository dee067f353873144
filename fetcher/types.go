package fetcher

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy"
)

// ID names a partition at the source. TopicID is zero for a source without topic ids.
type ID struct {
	TopicID   [16]byte
	Topic     string
	Partition int32
}

// Leader is where partitions come from: one source cluster, as one mirror sees it. Safe for
// concurrent use.
type Leader interface {
	// Connect opens a connection to a source broker for fetcher n. The error says in one line what
	// an operator needs: address and cause.
	Connect(ctx context.Context, broker int32, n int) (Conn, error)
}

// Conn is a connection to one source broker. It belongs to one goroutine, except for Close.
type Conn interface {
	// FetchVersion is the newest version of Fetch that both sides know, at least 4.
	FetchVersion() int16
	// RTT is the round trip time to the broker, as far as it is known.
	RTT() time.Duration
	// Send writes a request. It is encoded before Send returns and may be changed then.
	Send(req *kmsg.FetchRequest) error
	// Receive reads the response to the request that was sent last. The body is a part of the leased
	// buffer and ends with it. A response to anything else is an error; after an error the
	// connection is only good for Close.
	Receive(ctx context.Context) (zerocopy.Lease, []byte, error)
	Close() error
}

// Append is a run of whole, checked batches in offset order.
type Append struct {
	Records    []byte // a part of a leased buffer: not to be kept, not to be changed
	Batches    int
	BaseOffset int64 // of the first batch
	NextOffset int64 // after the last batch
	MaxEpoch   int32
}

// Observation is what the source said about a partition.
type Observation struct {
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64 // -1: the version does not say
	At               time.Time
}

// Sink is where the bytes of one partition go. The loop calls it with the partition locked, so a Sink must not
// call Manager.Remove for it. Nothing but the mirror appends while the partition is
// being fetched.
type Sink interface {
	LogStartOffset() int64
	LogEndOffset() int64
	// LatestEpoch is the epoch of the last batch as the local epoch cache has it, -1 for none.
	LatestEpoch() int32
	// LeaderEpoch is the local leader epoch (DLE), which no appended batch may exceed.
	LeaderEpoch() int32
	// Append stores the batches and publishes the new log end. An error ends the fetching of the
	// partition with an event.
	Append(a Append) error
	// Observe is called once per response that mentions the partition, after its batches were appended.
	Observe(o Observation)
}

// Assignment tells the Manager to fetch a partition. Fetching starts at the sink's log end offset.
type Assignment struct {
	ID ID
	// Broker is the source broker to fetch from, LeaderEpoch its epoch as the source's
	// metadata has it, -1 when unknown.
	Broker      int32
	LeaderEpoch int32
	Sink        Sink
	// Token is given back in events, so that those of an older assignment can be told.
	Token uint64
}

// Config is the fetch part of a mirror's configuration (SPEC section 11).
type Config struct {
	MaxWait           time.Duration // fetch.wait.max.ms
	MinBytes          int32         // fetch.min.bytes
	MaxBytes          int32         // fetch.response.max.bytes, to begin with
	PartitionMaxBytes int32         // fetch.max.bytes, to begin with
	Backoff           time.Duration // fetch.backoff.ms
}

// DefaultConfig has the defaults of SPEC section 11.
func DefaultConfig() Config {
	return Config{MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 10 << 20, PartitionMaxBytes: 1 << 20, Backoff: time.Second}
}

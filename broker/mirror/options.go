package mirror

import (
	"context"
	"log/slog"
	"net"
	"time"

	"stet/broker/meta"
	"stet/fetcher"
	"stet/internal/clock"
	"stet/zerocopy"
)

// Settings are broker settings of SPEC section 11 that may change while the broker runs.
type Settings struct {
	Fetchers        int           // mirror.num.replica.fetchers
	RefreshInterval time.Duration // mirror.metadata.refresh.interval.ms
	RetryInitial    time.Duration // mirror.failed.retry.initial.backoff.ms
	RetryMax        time.Duration // mirror.failed.retry.max.backoff.ms
	RetryAttempts   int           // mirror.failed.retry.max.attempts
}

// DefaultSettings are the defaults of SPEC section 11.
func DefaultSettings() Settings {
	return Settings{Fetchers: 1, RefreshInterval: 30 * time.Second, RetryInitial: 100 * time.Millisecond, RetryMax: 5 * time.Minute, RetryAttempts: 20}
}

// Options are what a Manager needs.
type Options struct {
	Node        int32
	Logger      *slog.Logger
	Clock       clock.Clock
	Image       func() *meta.Image
	Partitions  Partitions
	Controller  Controller
	Coordinator Coordinator
	Groups      Groups
	// Settings returns the settings that hold now.
	Settings func() Settings
	// SupportsULE says whether mirror.support.unclean.leader.election is on for a topic.
	SupportsULE func(topic string) bool
	// Compaction says whether a topic is compacted, and its delete.retention.ms.
	Compaction func(topic string) (deleteRetention time.Duration, compacted bool)
	// Pool lends the buffers of fetch responses (mirror.fetch.memory.bytes).
	Pool     *zerocopy.Pool
	Counters *fetcher.Counters
	// OnFetch, if set, gets the duration of every fetch of a mirror.
	OnFetch func(mirror string, d time.Duration)
	// OnThrottle, if set, gets the time for which a source (or, with own, our throttle) held a fetcher of the mirror back.
	OnThrottle func(mirror string, own bool, d time.Duration)
	// Throttle bounds the bytes of the partitions for which Throttled says so (SPEC section 12); nil: none.
	Throttle  fetcher.Throttle
	Throttled func(topic string, partition int32) bool
	// OnSyncError, if set, is told of every failed step of a refresh.
	OnSyncError func(mirror, step string)
	// OnStop, if set, gets the duration of every stop barrier of a partition.
	OnStop func(mirror string, d time.Duration)
	// Dial, if set, replaces the dialer towards sources.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// StopStep, if set, is called before each step of a stop barrier; an error ends the run of the barrier there.
	// For tests of what is done again.
	StopStep func(topic string, partition int32, step BarrierStep) error
}

func (o *Options) complete() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.Settings == nil {
		o.Settings = DefaultSettings
	}
	if o.SupportsULE == nil {
		o.SupportsULE = func(string) bool { return false }
	}
	if o.Compaction == nil {
		o.Compaction = func(string) (time.Duration, bool) { return 0, false }
	}
	if o.Pool == nil {
		o.Pool = zerocopy.NewPool(128 << 20)
	}
	if o.Counters == nil {
		o.Counters = &fetcher.Counters{}
	}
}

// throttled asks Throttled in the fetchers' terms.
func (o *Options) throttled(_ string, id fetcher.ID) bool {
	return o.Throttled != nil && o.Throttled(id.Topic, id.Partition)
}

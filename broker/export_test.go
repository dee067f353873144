package broker

import "stet/fetcher"

// FetchCounters are what the mirror's fetchers have counted.
func (b *Broker) FetchCounters() *fetcher.Counters { return b.mirrors.counters }

// LeasedBytes is what the mirror's fetch memory holds now.
func (b *Broker) LeasedBytes() int64 { return b.mirrors.pool.Leased() }

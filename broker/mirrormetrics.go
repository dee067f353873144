package broker

import (
	"strconv"
	"time"

	"stet/broker/mirror"
	"stet/metrics"
)

// collect reports the mirrors at a scrape (SPEC section 13). Only the first mirror.metrics.max.partitions partitions have
// series of their own, so that a scrape stays small whatever the number of partitions.
func (m *mirrors) collect(emit metrics.Emit) {
	m.totals.mu.Lock()
	defer m.totals.mu.Unlock()
	now := time.Now()
	all, known := m.Partitions(), map[string]bool{}
	limit := m.b.live("mirror.metrics.max.partitions")()
	states := map[[2]string]int{}
	rest := map[string]*mirror.PartitionStatus{}
	for i := range all {
		p := &all[i]
		states[[2]string{p.Mirror, p.State.String()}]++
		m.totals.update(p, i >= limit, now)
		if i < limit {
			emitPartition(emit, p, p.Topic, strconv.Itoa(int(p.Partition)))
			continue
		}
		sum := rest[p.Mirror]
		if sum == nil {
			sum = &mirror.PartitionStatus{Mirror: p.Mirror, Lag: -1, LagTime: -1, LagAge: -1}
			rest[p.Mirror] = sum
		}
		add(sum, p)
	}
	for k, n := range states {
		emit(metrics.MirrorPartitions, float64(n), k[0], k[1])
	}
	for _, s := range m.Mirrors() {
		known[s.Mirror] = true
		emit(metrics.MirrorTopics, float64(s.Topics), s.Mirror)
		emit(metrics.MirrorFetchers, float64(s.Connected), s.Mirror, "true")
		emit(metrics.MirrorFetchers, float64(s.Fetchers-s.Connected), s.Mirror, "false")
	}
	m.totals.forget(known, now)
	for name, c := range m.totals.other { // also when there are none at the moment: the sums stay
		sum := rest[name]
		if sum == nil {
			sum = &mirror.PartitionStatus{Mirror: name}
		}
		c.into(sum)
		emitPartition(emit, sum, "other", "other")
	}
}

// add sums the lag and keeps the largest of seconds and ages.
func add(sum, p *mirror.PartitionStatus) {
	if p.Lag >= 0 {
		sum.Lag = max(sum.Lag, 0) + p.Lag
	}
	sum.LagTime, sum.LagAge = max(sum.LagTime, p.LagTime), max(sum.LagAge, p.LagAge)
	sum.Throttled = sum.Throttled || p.Throttled
}

func emitPartition(emit metrics.Emit, p *mirror.PartitionStatus, topic, partition string) {
	one := func(d *metrics.Desc, v float64) { emit(d, v, p.Mirror, topic, partition) }
	one(metrics.MirrorLagRecords, float64(p.Lag))
	one(metrics.MirrorLagSeconds, secondsOf(p.LagTime))
	one(metrics.MirrorLagAge, secondsOf(p.LagAge))
	one(metrics.MirrorInBytes, float64(p.InBytes))
	one(metrics.MirrorInBatches, float64(p.InBatches))
	one(metrics.MirrorRetries, float64(p.Retries))
	one(metrics.MirrorGapRecords, float64(p.GapRecords))
	one(metrics.MirrorCutRecords, float64(p.CutRecords))
	one(metrics.MirrorEpochBumps, float64(p.EpochBumps))
	throttled := 0.0
	if p.Throttled {
		throttled = 1
	}
	one(metrics.MirrorThrottledNow, throttled)
}

// secondsOf keeps -1 as "unknown".
func secondsOf(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return d.Seconds()
}

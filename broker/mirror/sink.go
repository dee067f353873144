package mirror

import "stet/fetcher"

// sink implements fetcher.Sink for one assignment of a partition.
type sink struct {
	d      *driver
	part   Partition
	unseen *unseen // nil: the topic is not compacted
	token  uint64
}

func (s *sink) LogStartOffset() int64 { return s.part.LogStartOffset() }
func (s *sink) LogEndOffset() int64   { return s.part.LogEndOffset() }
func (s *sink) LatestEpoch() int32    { return s.part.LatestEpoch() }
func (s *sink) LeaderEpoch() int32    { return s.part.LeaderEpoch() }

func (s *sink) Append(a fetcher.Append) error {
	if s.unseen != nil {
		if err := s.unseen.check(s.part.LogEndOffset(), a.Records); err != nil {
			return err
		}
	}
	if err := s.part.AppendMirrored(a.Records); err != nil {
		return err
	}
	s.d.stats.inBytes.Add(int64(len(a.Records)))
	s.d.stats.inBatches.Add(int64(a.Batches))
	return nil
}

// Observe keeps the lag and lets the log start follow the source's, never beyond what was copied and
// replicated; what cannot be followed yet comes again with a later response.
func (s *sink) Observe(o fetcher.Observation) {
	end := s.part.LogEndOffset()
	s.d.lag.observe(o.HighWatermark, o.LastStableOffset, end, o.At)
	if u := s.unseen; u != nil && o.HighWatermark <= end {
		if t, ok := findUnended(s.part, o.LastStableOffset); ok {
			s.d.post(func(b *mailbox) { b.unended, b.unendedBy = t, s.token })
		}
		if u.keep {
			u.keep = false
			s.d.post(func(b *mailbox) { b.keep = true })
		}
	}
	if start := o.LogStartOffset; start > s.part.LogStartOffset() && start <= end && start <= s.part.HighWatermark() {
		if err := s.part.IncrementLogStartOffset(start); err != nil {
			s.d.log.Warn("log start does not follow the source's", "offset", start, "err", err)
		}
	}
}

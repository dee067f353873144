package loadgen

import "time"

// Schedule gives every record its intended time: record k is due k/rate after
// the start. It never looks at what really happened.
type Schedule struct {
	start    time.Time
	perSec   float64
	interval float64 // ns between records
}

// NewSchedule starts at start with a rate in records per second.
func NewSchedule(start time.Time, recordsPerSecond float64) Schedule {
	return Schedule{start: start, perSec: recordsPerSecond, interval: 1e9 / recordsPerSecond}
}

// At is the intended time of record k.
func (s Schedule) At(k int64) time.Time {
	return s.start.Add(time.Duration(float64(k) * s.interval))
}

// Due is how many records are due at now, from record 0 on.
func (s Schedule) Due(now time.Time) int64 {
	d := now.Sub(s.start)
	if d < 0 {
		return 0
	}
	return int64(float64(d)/s.interval) + 1
}

// Step is the time between two records.
func (s Schedule) Step() time.Duration { return time.Duration(s.interval) }

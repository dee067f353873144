package quota

import "time"

// Replication is one side of the throttle of replication inside a cluster
// (leader.replication.throttled.rate or follower.replication.throttled.rate). What
// counts and what is exempt is as in Apache Kafka: only listed replicas that are not in
// sync are held back, and the bytes of all listed ones count. Other than there, a fetch is cut to
// what the rate allows instead of being sent whole until an average over eleven
// seconds is exceeded, so the bounds of SPEC section 12 hold here, too.
//
// The leader calls Admit when it reads for a follower's fetch, and answers a part that may carry
// nothing without records; Done when it has read. A follower calls Admit when it
// builds a fetch, and leaves out a part that may carry nothing; Done when the response is there.
// It is safe for concurrent use.
type Replication struct{ l *Limiter }

// NewReplication starts with a rate in bytes per second.
func NewReplication(now time.Time, bytesPerSecond int64) *Replication {
	return &Replication{NewLimiter(now, bytesPerSecond)}
}

// SetRate changes the rate.
func (r *Replication) SetRate(now time.Time, bytesPerSecond int64) { r.l.SetRate(now, bytesPerSecond) }

// Part is one partition of a fetch.
type Part struct {
	Listed bool  // Replicas has it for this side's broker
	InSync bool  // the follower is in sync: never held back
	Max    int64 // bytes that it may carry without a throttle
	Limit  int64 // set by Admit: bytes that it may carry; 0: leave it out
}

func (p *Part) held() bool { return p.Listed && !p.InSync }

// leastFetched is what a fetch of held-back partitions is worth being sent for, in bytes.
const leastFetched = 64 << 10

// Admit sets the limit of every part. Parts that are held back share what the rate allows in their
// order, so a caller that puts those first that had least is fair to them. granted is for Done.
// When nothing but left-out parts remain, retry says when to ask again.
func (r *Replication) Admit(now time.Time, parts []Part) (granted int64, retry time.Duration) {
	var want int64
	for i := range parts {
		p := &parts[i]
		if p.Limit = p.Max; p.held() {
			want += p.Max
		}
	}
	if want == 0 {
		return 0, 0
	}
	granted, retry = r.l.Reserve(now, min(leastFetched, want), want)
	left := granted
	for i := range parts {
		p := &parts[i]
		if p.held() {
			p.Limit = min(p.Max, left)
			left -= p.Limit
		} else if p.Limit > 0 {
			retry = 0
		}
	}
	return granted, retry
}

// Done says how many bytes the fetch carried of what Admit has granted, and of listed replicas that are in sync.
func (r *Replication) Done(now time.Time, granted, held, inSync int64) {
	r.l.Settle(now, granted, held)
	r.l.charge(now, inSync)
}

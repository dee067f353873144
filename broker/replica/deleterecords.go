package replica

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// DeleteRecords raises the log start on behalf of a client, -1 to the high watermark, and
// returns where the log starts now.
func (p *Partition) DeleteRecords(offset int64) (start int64, err error) {
	p.gateMu.RLock()
	defer p.gateMu.RUnlock()
	if err := p.checkLeader(-1); err != nil {
		return -1, err
	}
	if p.gate.Err != nil {
		return -1, &Refused{p.gate.Err, p.gate.Message}
	}
	if policy := p.log.Config().CleanupPolicy; !strings.Contains(policy, "delete") {
		return -1, Refuse(kerr.PolicyViolation, "%s-%d: cleanup.policy is %q, records are not deleted", p.Topic, p.Index, policy)
	}
	hw := p.log.HighWatermark()
	if offset == -1 {
		offset = hw
	}
	if offset < 0 || offset > hw {
		return -1, Refuse(kerr.OffsetOutOfRange, "%s-%d: offset %d, the high watermark is %d", p.Topic, p.Index, offset, hw)
	}
	if err := p.log.IncrementLogStartOffset(offset); err != nil {
		return -1, err
	}
	return p.log.LogStartOffset(), nil
}

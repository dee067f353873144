package group

// scheduleExpiry looks for expired offsets every offsets.retention.check.interval.ms.
func (m *machine) scheduleExpiry() {
	m.timer(m.c.o.Config.RetentionCheck, func() {
		m.expire()
		m.scheduleExpiry()
	})
}

// expire removes offsets that are too old, and groups that have nothing left
// (KIP-211). What is too much for one operation is left for the next pass.
func (m *machine) expire() {
	now := m.s.NowMs()
	for _, g := range m.groups {
		left := len(g.offsets)
		for tp, o := range g.offsets {
			if m.full() {
				return
			}
			if m.expired(g, tp, o, now) {
				m.writeOffset(g.id, tp, nil)
				left--
			}
		}
		if left == 0 && g.state == empty && len(g.pending) == 0 {
			clear(g.offsets) // their tombstones are on the way
			m.removeGroup(g)
		}
	}
}

func (m *machine) expired(g *group, tp topicPartition, o *offset, now int64) bool {
	if o.expireMs >= 0 {
		return g.state == empty && now >= o.expireMs
	}
	retention := m.c.o.Config.OffsetsRetention.Milliseconds()
	switch {
	case g.protocolType == "": // a simple consumer's
		return now-o.commitMs >= retention
	case g.state == empty:
		since := g.stateMs
		if since < 0 {
			since = o.commitMs
		}
		// A group may be used for commits without members after it became empty.
		return now-max(since, o.commitMs) >= retention
	case g.state == stable && g.protocolType == consumerProtocol && !g.subscribed(tp.topic):
		return now-o.commitMs >= retention
	}
	return false
}

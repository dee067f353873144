package log

import (
	"fmt"
	"math"

	"stet/zerocopy/batch"
)

// AppendAsLeader appends batches that get the next offsets and leaderEpoch, which are
// patched into records. Of a client it takes one batch and checks it as Kafka's leader does;
// a retry of a batch that is already stored is answered with its first offsets. Of the
// coordinators and the broker itself it takes any number, and checks producer epochs and
// coordinator epochs. Nothing is stored if any batch is refused.
//
// records is only patched before the CRC, except that a topic with LogAppendTime, or a
// client whose max timestamp is wrong, costs a new CRC.
func (l *Log) AppendAsLeader(records []byte, leaderEpoch int32, origin Origin) (AppendResult, error) {
	cfg := l.cfg.Load()
	none := AppendResult{FirstOffset: -1, LastOffset: -1, LogAppendTime: -1, LogStartOffset: l.start.Load(), MaxTimestamp: -1}
	if len(records) == 0 {
		return none, fmt.Errorf("%w: no records", ErrInvalidRecord)
	}
	// What needs only the bytes is done before the lock: CRC, decompression, record checks.
	if err := checkBatches(records, cfg, origin, l.nowMs()); err != nil {
		return none, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return none, err
	}
	now := l.nowMs()
	for rest := records; len(rest) > 0; {
		b, next, _ := batch.Next(rest)
		rest = next
		if b.ProducerID() < 0 {
			continue
		}
		if origin == OriginClient {
			if d, ok := l.state.duplicate(b); ok {
				r := none
				r.Duplicate, r.Batches = true, 0
				r.FirstOffset, r.LastOffset, r.MaxTimestamp = d.lastOff-int64(d.delta), d.lastOff, d.timestamp
				return r, nil
			}
		}
		if err := l.state.check(b, origin); err != nil {
			return none, fmt.Errorf("%s: %w", l.tp, err)
		}
	}
	res := none
	offset := l.end.Load()
	for rest := records; len(rest) > 0; {
		b, next, _ := batch.Next(rest)
		rest = next
		if b.LastOffsetDelta() < 0 || offset > math.MaxInt64-1-int64(b.LastOffsetDelta()) {
			return none, fmt.Errorf("%w: %s: offsets are used up at %d", ErrInvalidRecord, l.tp, offset)
		}
		b.SetBaseOffset(offset)
		b.SetPartitionLeaderEpoch(leaderEpoch)
		if cfg.TimestampTypeLogAppend && !b.IsControl() {
			stampLogAppendTime(b, now)
			res.LogAppendTime = now
		}
		offset = b.NextOffset()
	}
	return l.append(records, res)
}

// AppendAsFollower appends whole batches as they are: offsets, epochs and CRC stay. The
// caller has checked the CRC. Offsets may leave gaps but must not go back; only the first batch
// of an empty log may begin below a log start that lies inside it. Nothing is stored on an error.
// The high watermark does not move.
func (l *Log) AppendAsFollower(batches []byte) (AppendResult, error) {
	res := AppendResult{FirstOffset: -1, LastOffset: -1, LogAppendTime: -1, LogStartOffset: l.start.Load(), MaxTimestamp: -1}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return res, err
	}
	if len(batches) == 0 {
		return res, nil
	}
	end, start := l.end.Load(), l.start.Load()
	empty := end == start && len(l.segs) == 1 && l.segs[0].size == 0
	expect := end
	for rest := batches; len(rest) > 0; {
		b, next, err := batch.Next(rest)
		if err != nil {
			return res, fmt.Errorf("%w: %s: after offset %d: %w", ErrCorruptMessage, l.tp, expect, err)
		}
		base, delta := b.BaseOffset(), b.LastOffsetDelta()
		if base < 0 || delta < 0 || base > math.MaxInt64-1-int64(delta) {
			return res, fmt.Errorf("%w: %s: offset %d with last offset delta %d", ErrCorruptMessage, l.tp, base, delta)
		}
		if base < expect {
			inside := empty && len(rest) == len(batches) && b.LastOffset() >= start
			if !inside {
				return res, fmt.Errorf("%w: %s: base offset %d, log end %d", ErrOffsetOrder, l.tp, base, expect)
			}
		}
		expect = b.NextOffset()
		rest = next
	}
	if first := batch.BaseOffsetOf(batches); empty && first < l.segs[0].base {
		if err := l.replaceEmpty(first); err != nil {
			return res, err
		}
	}
	return l.append(batches, res)
}

// append writes checked batches with their final offsets: one positional write, unless
// the segment has to be rolled in between. Log.mu is held.
func (l *Log) append(batches []byte, res AppendResult) (AppendResult, error) {
	if err := l.leaveDamaged(); err != nil {
		return res, err
	}
	cfg := l.cfg.Load()
	now := l.nowMs()
	run := 0 // start of what is not written yet
	for at := 0; at < len(batches); {
		b := batch.Batch(batches[at:])
		size := int(batch.SizeOf(b))
		if l.mustRoll(cfg, b, int64(at-run)+int64(size), at == run, now) {
			if err := l.write(batches[run:at], cfg, &res); err != nil {
				return res, err
			}
			run = at
			if err := l.roll(b); err != nil {
				return res, err
			}
		}
		at += size
	}
	if err := l.write(batches[run:], cfg, &res); err != nil {
		return res, err
	}
	if l.end.Load()-l.recoveryPoint.Load() >= cfg.FlushMessages {
		if err := l.flushLocked(); err != nil {
			return res, err
		}
	}
	return res, nil
}

// mustRoll says whether b has to go to a new segment. pending is what will be written
// before b, and b itself.
func (l *Log) mustRoll(cfg *Config, b batch.Batch, pending int64, first bool, now int64) bool {
	s := l.active()
	if !s.fits(b.LastOffset()) {
		return true
	}
	if s.size == 0 && first {
		return false
	}
	if s.size+pending > int64(cfg.SegmentBytes) {
		return true
	}
	if !first {
		return false // time and index limits are looked at once per append
	}
	if s.firstTs >= 0 {
		if b.MaxTimestamp()-s.firstTs > cfg.rollMs()-s.jitterMs {
			return true
		}
	} else if now-s.createdMs > cfg.rollMs()-s.jitterMs {
		return true
	}
	return s.full(cfg.SegmentIndexBytes)
}

// write stores a run of batches in the active segment and publishes them.
func (l *Log) write(run []byte, cfg *Config, res *AppendResult) error {
	if len(run) == 0 {
		return nil
	}
	s := l.active()
	if _, err := s.file.WriteAt(run, s.size); err != nil {
		return l.fail("write", err)
	}
	start, pos := s.size, s.size
	s.growLatest()
	newEpoch := false
	for rest := run; len(rest) > 0; {
		b := batch.Batch(rest)
		size := batch.SizeOf(b)
		b, rest = b[:size], rest[size:]
		s.note(b, pos, size, int64(cfg.IndexIntervalBytes))
		if e := b.PartitionLeaderEpoch(); !l.epochs.current(e) && l.epochs.assign(e, b.BaseOffset()) {
			newEpoch = true
		}
		if e, aborted := l.state.apply(b); aborted {
			s.addTxn(e)
		}
		if res.FirstOffset < 0 {
			res.FirstOffset = b.BaseOffset()
		}
		res.LastOffset = b.LastOffset()
		res.MaxTimestamp = max(res.MaxTimestamp, b.MaxTimestamp())
		res.Batches++
		pos += size
	}
	l.pub.Lock()
	s.size, s.next = pos, res.LastOffset+1
	l.pub.Unlock()
	l.total.Add(int64(len(run)))
	l.publish(res.LastOffset + 1)
	l.noteStep(start, pos)
	if newEpoch {
		// Not here: replacing the file costs more than the append, and after a crash the epochs behind the recovery
		// point come from the batches. A flush writes it before the recovery point moves, else Run does within a second.
		l.epochDirty, l.epochOld = true, true
	}
	return nil
}

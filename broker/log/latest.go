package log

import "sort"

// latestBatches is how many batches at the end of a segment that is appended to are remembered with their places.
const latestBatches = 64

// latest is where the last batches of the active segment are: who reads at the end of the log, or up to a high watermark a few batches before it,
// needs neither the index nor a read of the file for that.
type latest struct {
	ring  [latestBatches]placedBatch
	noted int   // batches so far; the last latestBatches of them are in the ring
	end   int64 // position behind the newest
}

// placedBatch is a batch by its last offset, relative to the segment's base, and its position.
type placedBatch struct{ last, pos int32 }

func (t *latest) note(last, pos, size int64) {
	t.ring[t.noted%latestBatches] = placedBatch{int32(last), int32(pos)}
	t.noted++
	t.end = pos + size
}

func (t *latest) at(i int) placedBatch { return t.ring[i%latestBatches] }

// find is segment.find where latest knows the answer. Of its oldest batch it does not, unless the segment begins with it: the offset may be in one before.
func (t *latest) find(offset, limit int64) (pos, size int64, ok bool) {
	oldest := max(t.noted-latestBatches, 0)
	i := oldest + sort.Search(t.noted-oldest, func(i int) bool { return int64(t.at(oldest+i).last) >= offset })
	if i == oldest && (t.noted == 0 || t.at(i).pos > 0) {
		return 0, 0, false
	}
	if i == t.noted {
		return limit, 0, limit <= t.end
	}
	pos, next := int64(t.at(i).pos), t.end
	if i+1 < t.noted {
		next = int64(t.at(i + 1).pos)
	}
	if pos >= limit { // noted, and not published yet when the reader looked
		return limit, 0, true
	}
	return pos, next - pos, next <= limit
}

// findLatest is find where latest knows the answer.
func (s *segment) findLatest(offset, limit int64) (pos, size int64, ok bool) {
	s.imu.Lock()
	defer s.imu.Unlock()
	if s.latest == nil {
		return 0, 0, false
	}
	return s.latest.find(offset-s.base, limit)
}

// growLatest begins to remember what is appended. Log.mu is held.
func (s *segment) growLatest() {
	if s.latest == nil {
		t := new(latest)
		s.imu.Lock()
		s.latest = t
		s.imu.Unlock()
	}
}

// forgetLatest is for a segment that is not appended to any more, as after a cut: memory only, for what is remembered stays true of what is left. Log.mu is held.
func (s *segment) forgetLatest() {
	s.imu.Lock()
	s.latest = nil
	s.imu.Unlock()
}

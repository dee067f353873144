package log

import (
	"slices"

	"stet/zerocopy/batch"
)

// cleanedTxns follows the transactions while batches are gone over in order of offsets,
// and says what of them may go. It begins at the first batch of the log.
type cleanedTxns struct {
	aborted   []abortedTxn // still to come, by first offset
	ongoing   map[int64]*cleanedAbort
	committed map[int64]bool // producers with data of a transaction that was not aborted
}

// cleanedAbort is an aborted transaction whose marker is still to come.
type cleanedAbort struct {
	txn  abortedTxn
	seen bool // some of its batches are still in the log
}

func newCleanedTxns(aborted []abortedTxn) *cleanedTxns {
	aborted = slices.Clone(aborted)
	slices.SortFunc(aborted, func(a, b abortedTxn) int {
		switch {
		case a.firstOffset < b.firstOffset:
			return -1
		case a.firstOffset > b.firstOffset:
			return 1
		}
		return 0
	})
	return &cleanedTxns{aborted: aborted, ongoing: map[int64]*cleanedAbort{}, committed: map[int64]bool{}}
}

func (t *cleanedTxns) upTo(offset int64) {
	for len(t.aborted) > 0 && t.aborted[0].firstOffset <= offset {
		a := t.aborted[0]
		t.aborted = t.aborted[1:]
		if t.ongoing[a.producerID] == nil {
			t.ongoing[a.producerID] = &cleanedAbort{txn: a}
		}
	}
}

// data says whether a data batch is of an aborted transaction.
func (t *cleanedTxns) data(b batch.Batch) bool {
	t.upTo(b.LastOffset())
	if !b.IsTransactional() {
		return false
	}
	if a := t.ongoing[b.ProducerID()]; a != nil {
		a.seen = true
		return true
	}
	t.committed[b.ProducerID()] = true
	return false
}

// control says whether a control batch is of no use any more: a marker of a transaction of
// which nothing is left. keep is the entry of the transaction index that goes with a marker
// that is still needed.
func (t *cleanedTxns) control(b batch.Batch) (useless bool, keep abortedTxn, hasKeep bool) {
	t.upTo(b.LastOffset())
	if b.NumRecords() == 0 {
		return true, keep, false // an earlier round emptied it
	}
	m, isMarker, err := readMarker(b)
	if err != nil || !isMarker {
		return false, keep, false // not ours to judge; a MIRROR_PID_RESET stays for ever
	}
	id := b.ProducerID()
	if m.typ == batch.ControlCommit {
		had := t.committed[id]
		delete(t.committed, id)
		return !had, keep, false
	}
	a := t.ongoing[id]
	delete(t.ongoing, id)
	if a != nil && a.seen {
		return false, a.txn, true
	}
	return true, keep, false
}

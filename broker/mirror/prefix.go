package mirror

import (
	"fmt"
)

// epochAnswer is what a source says about an epoch: the largest one it has that is not above the one asked for, and
// where that ends; -1 and -1 when it has none.
type epochAnswer struct {
	epoch int32
	end   int64
}

// prefix is what two logs have in common.
type prefix struct {
	// cut is where the local log has to be cut for it to be a prefix of the source's.
	cut int64
	// agreed is the epoch that both sides have, -1 for none, answered its end at the source.
	agreed   int32
	answered int64
}

// walk asks the source for the end of local epochs, from the latest down, until both sides agree (SPEC 4.7). It
// does not look at offsets below the answered ones: equal epochs that are started by one leader hold equal records. A
// source that knows none of the epochs has nothing in common with the log: agreed is -1, cut the local log start.
func walk(entries []EpochStart, start, end int64, ask func(epoch int32) (epochAnswer, error)) (prefix, error) {
	i := len(entries) - 1
	for i >= 0 {
		a, err := ask(entries[i].Epoch)
		if err != nil {
			return prefix{}, err
		}
		if a.epoch < 0 || a.end < 0 { // not known there: the next older one
			i--
			continue
		}
		if a.epoch > entries[i].Epoch {
			return prefix{}, fmt.Errorf("the source answers epoch %d when asked for epoch %d", a.epoch, entries[i].Epoch)
		}
		// The local entry that is at or below the answered epoch.
		j := i
		for j >= 0 && entries[j].Epoch > a.epoch {
			j--
		}
		switch {
		case j < 0: // all local epochs are above: they begin where the source had gone on otherwise
			return prefix{cut: max(min(entries[0].Start, a.end), start), agreed: -1, answered: a.end}, nil
		case entries[j].Epoch == a.epoch:
			return prefix{cut: max(min(localEnd(entries, j, end), a.end), start), agreed: a.epoch, answered: a.end}, nil
		case j == i:
			// The source has the epoch's place but not the epoch: it answered a lower one that we have not.
			i--
		default:
			i = j
		}
	}
	return prefix{cut: start, agreed: -1, answered: -1}, nil
}

// localEnd is where the epoch of entries[i] ends in a log that ends at end.
func localEnd(entries []EpochStart, i int, end int64) int64 {
	if i+1 < len(entries) {
		return entries[i+1].Start
	}
	return end
}

// divergenceCut is where a log is cut to which the source answered that epoch ends at answered: not beyond it, and
// not beyond the start of the first local epoch above it (SPEC 4.8, C75).
func divergenceCut(entries []EpochStart, end int64, a epochAnswer) int64 {
	cut := min(end, a.end)
	for _, e := range entries {
		if e.Epoch > a.epoch {
			return min(cut, e.Start)
		}
	}
	return cut
}

// pair is {LME, LMO}: the latest epoch in the log and the first offset that was not copied when
// mirroring stopped (SPEC 4.6); -1 where unknown.
type pair struct {
	epoch  int32
	offset int64
}

var noPair = pair{-1, -1}

// exists says whether there is a pair at all.
func (p pair) exists() bool { return p.offset >= 0 || p.epoch >= 0 }

// greater compares by LME, then LMO.
func (p pair) greater(q pair) bool {
	return p.epoch > q.epoch || p.epoch == q.epoch && p.offset > q.offset
}

// bound is where a pair says that local writes begin.
func (p pair) bound(entries []EpochStart, end int64) int64 {
	cut := end
	if p.offset >= 0 {
		cut = min(cut, p.offset)
	}
	for _, e := range entries {
		if e.Epoch > p.epoch {
			return min(cut, e.Start)
		}
	}
	return cut
}

// lowered is what is left of a pair when the log was cut to end, with latest as its latest epoch.
func (p pair) lowered(latest int32, end int64) pair {
	if p.offset <= end {
		return p
	}
	return pair{min(p.epoch, latest), end}
}

// localWritesCut is where a log with local writes is cut that has a pair (SPEC 4.7): the pair is obsolete if the walk agreed on an
// epoch above it whose end lies above the source's log start, for an expired epoch is answered too and proves nothing.
func localWritesCut(p pair, common prefix, entries []EpochStart, end, sourceStart int64) int64 {
	if common.agreed > p.epoch && common.answered > sourceStart {
		return common.cut
	}
	return min(p.bound(entries, end), common.cut)
}

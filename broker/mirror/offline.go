package mirror

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/mirror/mirrorstate"
	"stet/broker/mirrormsg"
)

// What cannot be stored, because a disk is full or gone, must be seen nevertheless: the stored state is the last one that
// could be. These add what this broker knows better.

// addOffline changes the status of a partition whose log is offline, or whose driver is held up by __mirror_state.
func (m *Manager) addOffline(s *PartitionStatus, v view) {
	if v.stuck.err != nil {
		s.Error, s.cause = v.stuck.err.Error(), kerr.CoordinatorNotAvailable
		if v.stuck.failed {
			s.State = mirrorstate.Failed
		}
	}
	if err := m.o.Partitions.Offline(s.Topic, s.Partition); err != nil {
		s.State = offlineState(s.State)
		s.Error, s.cause = offlineText(err), kerr.KafkaStorageError
	}
}

// offlineState is what is shown instead of a state whose log is offline. A stopped partition is no concern of the mirror.
func offlineState(s mirrorstate.State) mirrorstate.State {
	if s == mirrorstate.Stopped {
		return s
	}
	return mirrorstate.Failed
}

func offlineText(err error) string {
	return fmt.Sprintf("its log here is offline: %v; when the disk is well, restart the broker", err)
}

// describeMissing describes a partition that should be led here and whose log could not be opened: it has no driver.
func (m *Manager) describeMissing(img *meta.Image, t *meta.Topic, index int32) (mirrormsg.DescribeMirrorsResponseMirrorTopicPartition, bool) {
	p := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartition()
	err := m.o.Partitions.Offline(t.Name, index)
	if err == nil || t.Partitions[index].Leader != m.o.Node {
		return p, false
	}
	state := mirrorstate.Failed
	if _, mode := img.TopicMirror(t.Name); mode == meta.MirrorStopped {
		state = mirrorstate.Stopped
	}
	text := offlineText(err)
	p.PartitionIndex, p.State, p.ErrorCode, p.ErrorMessage = index, state.String(), kerr.KafkaStorageError.Code, &text
	return p, true
}

// statesOffline says that states of a mirror cannot be read or stored here, "" if all can.
func (m *Manager) statesOffline(img *meta.Image, mirror string) string {
	t := img.Topic(mirrormsg.MirrorStateTopic)
	if t == nil {
		return ""
	}
	n, first := 0, error(nil)
	for i, p := range t.Partitions {
		if p.Leader != m.o.Node {
			continue
		}
		if err := m.o.Partitions.Offline(t.Name, int32(i)); err != nil {
			if n++; first == nil {
				first = err
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("mirror %s: %d of %d partitions of %s are offline, so that states may be old and cannot be changed: %v", mirror, n, len(t.Partitions), t.Name, first)
}

// stuck is why a driver does not get on although nothing is wrong with its partition.
type stuck struct {
	err    error
	failed bool // what cannot be stored is that it has failed
}

// stuckAfter is how many tries may fail before it is shown.
const stuckAfter = 3

// setStuck shows, or with a nil error no longer shows, what holds the driver up.
func (d *driver) setStuck(s stuck) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.view.stuck = s
}

// cannotStore is what is shown while a state cannot be stored.
func cannotStore(to mirrorstate.State, next *mirrormsg.PartitionState, err error) stuck {
	if to == mirrorstate.Failed && next.ErrorMessage != nil {
		return stuck{fmt.Errorf("%s (and this cannot be stored in %s: %w)", *next.ErrorMessage, mirrormsg.MirrorStateTopic, err), true}
	}
	return stuck{fmt.Errorf("its state %s cannot be stored in %s: %w", to, mirrormsg.MirrorStateTopic, err), false}
}

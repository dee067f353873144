package mirrormsg

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// Record types of __mirror_state (SPEC section 10).
const (
	StateRecordLastMirror int16 = 1 // value LastMirrorEpochs
	StateRecordState      int16 = 2 // value PartitionState
)

// MirrorStateTopic is the internal topic of the mirror coordinator.
const MirrorStateTopic = "__mirror_state"

// StateRecordKey is the key of a record of __mirror_state. Not flexible.
type StateRecordKey struct {
	Type            int16
	MirrorID        [16]byte
	TopicID         [16]byte
	Partition       int32
	SourceClusterID string // type 1 only
}

// AppendTo appends the encoded key.
func (k *StateRecordKey) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt16(dst, k.Type)
	dst = kbin.AppendUuid(dst, k.MirrorID)
	dst = kbin.AppendUuid(dst, k.TopicID)
	dst = kbin.AppendInt32(dst, k.Partition)
	if k.Type == StateRecordLastMirror {
		dst = kbin.AppendString(dst, k.SourceClusterID)
	}
	return dst
}

// ReadFrom decodes a key. Types that are not known are an error that names the type.
func (k *StateRecordKey) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	*k = StateRecordKey{Type: b.Int16()}
	if b.Ok() && k.Type != StateRecordLastMirror && k.Type != StateRecordState {
		return fmt.Errorf("%s key: type %d is not known", MirrorStateTopic, k.Type)
	}
	k.MirrorID, k.TopicID, k.Partition = b.Uuid(), b.Uuid(), b.Int32()
	if k.Type == StateRecordLastMirror {
		k.SourceClusterID = b.String()
	}
	if err := b.Complete(); err != nil {
		return fmt.Errorf("%s key: %w", MirrorStateTopic, err)
	}
	if len(b.Src) != 0 {
		return fmt.Errorf("%s key: %d bytes too many", MirrorStateTopic, len(b.Src))
	}
	return nil
}

// DecodeStateValue decodes the value of a record of __mirror_state of the given
// type: *LastMirrorEpochs or *PartitionState.
func DecodeStateValue(recordType int16, value []byte) (any, error) {
	version := (&kbin.Reader{Src: value}).Int16()
	if len(value) < 2 || version != 0 {
		return nil, fmt.Errorf("%s value of type %d: version %d is not known", MirrorStateTopic, recordType, version)
	}
	switch recordType {
	case StateRecordLastMirror:
		v := NewLastMirrorEpochs()
		if err := v.ReadFrom(value); err != nil {
			return nil, fmt.Errorf("%s value of type %d: %w", MirrorStateTopic, recordType, err)
		}
		return &v, nil
	case StateRecordState:
		v := NewPartitionState()
		if err := v.ReadFrom(value); err != nil {
			return nil, fmt.Errorf("%s value of type %d: %w", MirrorStateTopic, recordType, err)
		}
		return &v, nil
	}
	return nil, fmt.Errorf("%s value: type %d is not known", MirrorStateTopic, recordType)
}

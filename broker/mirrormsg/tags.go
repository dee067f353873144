package mirrormsg

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// SetMirrorInfo adds MirrorInfo{TopicId} to a topic of a CreateTopics request: the
// topic is to be created with this id.
func SetMirrorInfo(t *kmsg.CreateTopicsRequestTopic, topicID [16]byte) {
	setUUIDTag(&t.UnknownTags, topicID)
}

// MirrorInfo reads MirrorInfo{TopicId} of a topic of a CreateTopics request; ok
// says whether it is there. An error means that its bytes are malformed.
func MirrorInfo(t *kmsg.CreateTopicsRequestTopic) (topicID [16]byte, ok bool, err error) {
	return uuidTag(&t.UnknownTags, "CreateTopics topic "+t.Topic)
}

// SetCommitMirrorID marks an OffsetCommit request as a synced commit of a mirror (SPEC section 8).
func SetCommitMirrorID(r *kmsg.OffsetCommitRequest, mirrorID [16]byte) {
	setUUIDTag(&r.UnknownTags, mirrorID)
}

// CommitMirrorID reads the mark of SetCommitMirrorID; ok says whether it is there.
func CommitMirrorID(r *kmsg.OffsetCommitRequest) (mirrorID [16]byte, ok bool, err error) {
	return uuidTag(&r.UnknownTags, "OffsetCommit")
}

// A struct in a tagged field: 16 uuid bytes and an empty tag section.
func setUUIDTag(t *kmsg.Tags, id [16]byte) {
	t.Set(Tag1279, append(id[:], 0))
}

func uuidTag(t *kmsg.Tags, where string) (id [16]byte, ok bool, err error) {
	t.Each(func(tag uint32, value []byte) {
		if tag != Tag1279 {
			return
		}
		ok = true
		// Tags of a later version may follow; today there are none.
		if len(value) != 17 || value[16] != 0 {
			err = fmt.Errorf("%s: tagged field %d has %d bytes instead of a uuid and an empty tag section", where, Tag1279, len(value))
			return
		}
		id = [16]byte(value)
	})
	return id, ok && err == nil, err
}

package meta

import (
	"strconv"
	"strings"
)

// Hidden topic configs, written only by the controller (SPEC section 10).
const (
	ConfigMirrorName  = "mirror.name"
	ConfigMirrorStart = "mirror.start"
)

// MirrorTopicState is what the topic config mirror.name says about a topic.
type MirrorTopicState int8

// The states of a topic in a mirror. What its partitions do is another matter.
const (
	NotMirrored    MirrorTopicState = iota
	MirrorActive                    // mirror.name = <mirror>
	MirrorPaused                    // <mirror>.paused
	MirrorStopping                  // <mirror>.stopping
	MirrorStopped                   // <mirror>.stopped
)

func (s MirrorTopicState) String() string {
	return [...]string{"none", "active", "paused", "stopping", "stopped"}[s]
}

// suffix is what the state adds to the mirror's name.
func (s MirrorTopicState) suffix() string {
	return [...]string{"", "", ".paused", ".stopping", ".stopped"}[s]
}

// MirrorNameOf reads mirror.name of a topic's config.
func MirrorNameOf(topicConfig map[string]string) (mirror string, state MirrorTopicState) {
	v := topicConfig[ConfigMirrorName]
	if v == "" {
		return "", NotMirrored
	}
	for s := MirrorPaused; s <= MirrorStopped; s++ {
		if m, ok := strings.CutSuffix(v, s.suffix()); ok {
			return m, s
		}
	}
	return v, MirrorActive
}

// MirrorNameValue is the value of mirror.name for a mirror and a state.
func MirrorNameValue(mirror string, state MirrorTopicState) string { return mirror + state.suffix() }

// MirrorStartOf reads mirror.start of a topic's config: the metadata offset of
// the last start, -1 if there is none, and whether it may overwrite local data.
func MirrorStartOf(topicConfig map[string]string) (offset int64, overwrite bool) {
	v, overwrite := strings.CutSuffix(topicConfig[ConfigMirrorStart], ",overwrite")
	offset, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return -1, false
	}
	return offset, overwrite
}

// MirrorStartValue is the value of mirror.start.
func MirrorStartValue(offset int64, overwrite bool) string {
	v := strconv.FormatInt(offset, 10)
	if overwrite {
		v += ",overwrite"
	}
	return v
}

// TopicMirror is MirrorNameOf for a topic of the image.
func (img *Image) TopicMirror(topic string) (mirror string, state MirrorTopicState) {
	return MirrorNameOf(img.Config(ResourceTopic, topic))
}

// ReadOnly says whether only the mirror may append to the topic: it belongs to a
// mirror and is not stopped (SPEC section 6).
func (img *Image) ReadOnly(topic string) (mirror string, readOnly bool) {
	m, s := img.TopicMirror(topic)
	return m, s != NotMirrored && s != MirrorStopped
}

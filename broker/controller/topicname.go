package controller

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

// CheckTopicName applies Kafka's rule for topic names. The error wraps INVALID_TOPIC_EXCEPTION.
func CheckTopicName(name string) error {
	invalid := func(format string, args ...any) error {
		return mirrormsg.Errorf(kerr.InvalidTopicException, "Topic name is invalid: "+format, args...)
	}
	switch {
	case name == "":
		return invalid("it is empty")
	case name == "." || name == "..":
		return invalid("it cannot be '.' or '..'")
	case len(name) > 249:
		return invalid("'%.40s...' has %d characters; at most 249 are allowed", name, len(name))
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return invalid("'%s' has other characters than ASCII letters, digits, '.', '_' and '-'", name)
		}
	}
	return nil
}

// checkCollision refuses a name that differs from an existing one only by '.'
// instead of '_': Kafka's metric names would be the same.
func checkCollision(img *meta.Image, name string) error {
	if !strings.ContainsAny(name, "._") {
		return nil
	}
	unified := strings.ReplaceAll(name, ".", "_")
	for _, t := range img.Topics() {
		if t.Name != name && strings.ReplaceAll(t.Name, ".", "_") == unified {
			return mirrormsg.Errorf(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", name, t.Name)
		}
	}
	return nil
}

// checkNotReadOnly refuses what SPEC section 6 refuses on a mirror topic that is not stopped.
func checkNotReadOnly(img *meta.Image, name string) error {
	mirror, state := img.TopicMirror(name)
	if state == meta.NotMirrored || state == meta.MirrorStopped {
		return nil
	}
	return mirrormsg.Errorf(kerr.PolicyViolation, "Topic '%s' is read-only: it belongs to mirror '%s' (%s); stop mirroring it first", name, mirror, state)
}

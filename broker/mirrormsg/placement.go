package mirrormsg

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// JavaHash is String.hashCode of Java: over UTF-16 code units.
func JavaHash(s string) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(u)
	}
	return h
}

// PartitionFor places a key on one of n partitions: abs(hash) % n, where abs maps
// the smallest int32 to 0. It is the rule of __mirror_state and of
// __consumer_offsets. n must be positive.
func PartitionFor(key string, n int32) int32 {
	h := JavaHash(key)
	if h == -1<<31 {
		h = 0
	} else if h < 0 {
		h = -h
	}
	return h % n
}

// StateKey is the key that places the state of a partition (SPEC section 2).
func StateKey(mirror string, topicID [16]byte, partition int32) string {
	return mirror + ":" + UUIDString(topicID) + ":" + strconv.Itoa(int(partition))
}

// ParseCoordinatorKey checks a FindCoordinator key of type MIRROR: a mirror's
// name, or a StateKey. Topic id and partition are zero values for a name alone.
func ParseCoordinatorKey(key string) (mirror string, topicID [16]byte, partition int32, isState bool, err error) {
	parts := strings.Split(key, ":")
	if len(parts) != 1 && len(parts) != 3 {
		return "", topicID, 0, false, fmt.Errorf("coordinator key %q: neither MIRROR nor MIRROR:TOPICID:PARTITION", key)
	}
	if err := CheckMirrorName(parts[0]); err != nil {
		return "", topicID, 0, false, fmt.Errorf("coordinator key %q: %w", key, err)
	}
	if len(parts) == 1 {
		return parts[0], topicID, 0, false, nil
	}
	if topicID, err = ParseUUID(parts[1]); err != nil {
		return "", topicID, 0, false, fmt.Errorf("coordinator key %q: %w", key, err)
	}
	p, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil || p < 0 || strconv.FormatInt(p, 10) != parts[2] {
		return "", topicID, 0, false, fmt.Errorf("coordinator key %q: %q is no partition", key, parts[2])
	}
	return parts[0], topicID, int32(p), true, nil
}

// CheckMirrorName applies the rule for mirror names of SPEC section 9. The error
// wraps InvalidMirrorName.
func CheckMirrorName(name string) error {
	switch {
	case name == "":
		return Errorf(InvalidMirrorName, "a mirror name cannot be empty")
	case len(name) > 249:
		return Errorf(InvalidMirrorName, "mirror name %.30q... has %d characters; at most 249 are allowed", name, len(name))
	case name == "." || name == "..":
		return Errorf(InvalidMirrorName, "mirror name cannot be %q", name)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return Errorf(InvalidMirrorName, "mirror name %q: only ASCII letters, digits, '.', '_' and '-' are allowed", name)
		}
	}
	for _, suffix := range []string{".stopped", ".stopping", ".paused"} {
		if strings.HasSuffix(name, suffix) {
			return Errorf(InvalidMirrorName, "mirror name %q cannot end in %q", name, suffix)
		}
	}
	return nil
}

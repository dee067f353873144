package quota

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Replicas are the replicas of one topic that a throttle applies to: the parsed value
// of leader., follower. or mirror.replication.throttled.replicas. The zero value has none.
type Replicas struct {
	all  bool
	list []replica
}

type replica struct{ partition, broker int32 }

// ErrReplicas says that a list of throttled replicas cannot be read.
var ErrReplicas = errors.New("throttled replicas are empty, * or a list of PARTITION:BROKER")

// ParseReplicas reads "p:b,p:b,..." or "*"; empty means none. As in Apache Kafka,
// blanks around elements do not count and empty elements are passed over; numbers are of 31 bits.
func ParseReplicas(value string) (Replicas, error) {
	value = strings.TrimSpace(value)
	if value == "*" {
		return Replicas{all: true}, nil
	}
	var r Replicas
	for e := range strings.SplitSeq(value, ",") {
		if e = strings.TrimSpace(e); e == "" {
			continue
		}
		p, b, _ := strings.Cut(e, ":")
		partition, err := number(p)
		if err != nil {
			return Replicas{}, fmt.Errorf("%w, not %q", ErrReplicas, e)
		}
		broker, err := number(b)
		if err != nil {
			return Replicas{}, fmt.Errorf("%w, not %q", ErrReplicas, e)
		}
		r.list = append(r.list, replica{partition, broker})
	}
	return r, nil
}

// number reads digits and nothing else: no sign, no blank.
func number(s string) (int32, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int32(n), err
}

// Contains says whether the replica of a partition on a broker is throttled.
func (r Replicas) Contains(partition, broker int32) bool {
	if r.all {
		return true
	}
	for _, e := range r.list {
		if e == (replica{partition, broker}) {
			return true
		}
	}
	return false
}

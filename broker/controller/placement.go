package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
)

// place chooses replicas for partitions first..first+count-1 of a topic: the
// brokers that are alive in turn, each partition beginning one further, so that
// leaders are spread; a second round shifts the followers against the leaders.
// The topic's name decides where it begins, so that small topics spread too.
func place(img *meta.Image, topic string, first, count int32, factor int) ([][]int32, error) {
	var alive []int32
	for _, b := range img.Brokers() {
		if b.Alive() {
			alive = append(alive, b.ID)
		}
	}
	if factor > len(alive) {
		return nil, mirrormsg.Errorf(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): only %d broker(s) are registered and alive", factor, len(alive))
	}
	n := int32(len(alive))
	start := mirrormsg.PartitionFor(topic, n)
	all := make([][]int32, 0, count)
	for p := first; p < first+count; p++ {
		shift := int32(1)
		if n > 1 {
			shift = 1 + (p/n)%(n-1)
		}
		leader := (start + p) % n
		replicas := []int32{alive[leader]}
		for j := int32(0); len(replicas) < factor; j++ {
			replicas = append(replicas, alive[(leader+1+(shift-1+j)%(n-1))%n])
		}
		all = append(all, replicas)
	}
	return all, nil
}

// checkAssignment checks the replicas that somebody chose for one partition.
func checkAssignment(img *meta.Image, replicas []int32, factor int) error {
	bad := func(format string, args ...any) error {
		return mirrormsg.Errorf(kerr.InvalidReplicaAssignment, format, args...)
	}
	if len(replicas) == 0 {
		return bad("The manual partition assignment includes an empty replica list.")
	}
	for i, r := range replicas {
		if img.Broker(r) == nil {
			return bad("The manual partition assignment includes broker %d, but no such broker is registered.", r)
		}
		if slices.Contains(replicas[:i], r) {
			return bad("The manual partition assignment includes the broker %d more than once.", r)
		}
	}
	if factor > 0 && len(replicas) != factor {
		return bad("The manual partition assignment includes a partition with %d replica(s), but the other partitions have %d.", len(replicas), factor)
	}
	return nil
}

// newPartition is the state of a partition that is created now: the replicas that
// are alive are in sync, the first of them leads.
func newPartition(img *meta.Image, replicas []int32) (meta.Partition, error) {
	p := meta.Partition{Replicas: replicas, Leader: -1, BarrierEnd: -1}
	for _, r := range replicas {
		if b := img.Broker(r); b != nil && b.Alive() {
			p.ISR = append(p.ISR, r)
		}
	}
	if len(p.ISR) == 0 {
		return p, mirrormsg.Errorf(kerr.InvalidReplicaAssignment, "All brokers of the partition's replicas %v are fenced or shutting down.", replicas)
	}
	p.Leader = p.ISR[0]
	return p, nil
}

// allAlive is what MirrorInfo demands of every assigned replica (SPEC section 9).
func allAlive(img *meta.Image, assignment [][]int32) error {
	for p, replicas := range assignment {
		for _, r := range replicas {
			if b := img.Broker(r); b == nil || !b.Alive() {
				return mirrormsg.Errorf(kerr.InvalidReplicaAssignment, "Partition %d: broker %d is not alive or is shutting down; a mirror topic is created only while all its replicas are alive", p, r)
			}
		}
	}
	return nil
}

// topicRecords creates a topic with its partitions.
func topicRecords(img *meta.Image, name string, id [16]byte, assignment [][]int32, aligned [16]byte) ([]meta.Record, error) {
	recs := []meta.Record{&meta.CreateTopic{Name: name, ID: id, Incarnation: -1}}
	more, err := partitionRecords(img, id, 0, assignment, aligned)
	if err != nil {
		return nil, err
	}
	return append(recs, more...), nil
}

func partitionRecords(img *meta.Image, id [16]byte, first int32, assignment [][]int32, aligned [16]byte) ([]meta.Record, error) {
	var recs []meta.Record
	for i, replicas := range assignment {
		p, err := newPartition(img, replicas)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", first+int32(i), err)
		}
		p.AlignedMirrorID = aligned
		recs = append(recs, &meta.CreatePartition{TopicID: id, Partition: first + int32(i), State: p})
	}
	return recs, nil
}

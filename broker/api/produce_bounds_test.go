package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"stet/internal/invariant"
	"stet/zerocopy/batch"
)

// produceBody is a flexible Produce body of topics, that is of the bytes after their count.
func produceBody(topics int, rest []byte) []byte {
	b := []byte{0, 0, 1, 0, 0, 0, 1} // no transactional id, acks, timeout
	b = binary.AppendUvarint(b, uint64(topics)+1)
	return append(append(b, rest...), 0)
}

// produceTopicOf is a topic with a claimed number of partitions, of which some are there, each with so many bytes.
func produceTopicOf(name string, claimed, there, records int) []byte {
	b := append([]byte{byte(len(name) + 1)}, name...)
	b = binary.AppendUvarint(b, uint64(claimed)+1)
	for i := range there {
		b = binary.BigEndian.AppendUint32(b, uint32(i))
		b = binary.AppendUvarint(b, uint64(records)+1)
		b = append(b, make([]byte, records+1)...)
	}
	return append(b, 0)
}

// allocated is how many bytes f allocates, 0 with -race and invariants, which allocate for themselves.
func allocated(f func()) uint64 {
	if invariant.Enabled {
		f()
		return 0
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHollowProduceRequestsAreRefused: a request that would cost many times what was received ends as a malformed one does.
func TestHollowProduceRequestsAreRefused(t *testing.T) {
	const many = 1 << 18
	for name, body := range map[string][]byte{
		"empty partitions":        produceBody(1, produceTopicOf("t", many, many, 0)),
		"partitions with a byte":  produceBody(1, produceTopicOf("t", many, many, 1)),
		"topics with a partition": produceBody(many, []byte(strings.Repeat(string(produceTopicOf("t", 1, 1, 0)), many))),
		"empty topics":            produceBody(many, []byte(strings.Repeat(string(produceTopicOf("", 0, 0, 0)), many))),
	} {
		var err error
		n := allocated(func() { err = new(produceCall).parse(9, body) })
		if !errors.Is(err, errHollow) {
			t.Errorf("%s: %v", name, err)
		}
		if n > uint64(3*len(body)) {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, n, len(body))
		}
	}
}

// TestProduceClaimsCostNothing: a number of partitions is believed as far as there are bytes for them.
func TestProduceClaimsCostNothing(t *testing.T) {
	body := produceBody(1, produceTopicOf("t", 1<<30, 200, batch.HeaderSize))
	var err error
	n := allocated(func() { err = new(produceCall).parse(9, body) })
	if err == nil {
		t.Error("a claim of 2^30 partitions is taken")
	}
	if n > 256<<10 {
		t.Errorf("%d bytes allocated for a body of %d", n, len(body))
	}
}

// TestFewHollowPartitionsAreAnswered: null and empty records are answered with an error per partition, as by Kafka.
func TestFewHollowPartitionsAreAnswered(t *testing.T) {
	for _, records := range []int{-1, 0, 60} {
		topic := produceTopicOf("t", maxHollow, 0, 0)
		topic = topic[:len(topic)-1]
		for i := range maxHollow {
			topic = binary.BigEndian.AppendUint32(topic, uint32(i))
			topic = binary.AppendUvarint(topic, uint64(records+1))
			topic = append(topic, make([]byte, max(records, 0)+1)...)
		}
		var c produceCall
		if err := c.parse(9, produceBody(1, append(topic, 0))); err != nil || len(c.parts) != maxHollow {
			t.Errorf("%d bytes of records: %d partitions: %v", records, len(c.parts), err)
		}
	}
}

// TestProduceAnswerIsBounded: as many partitions as fit, all refused with a text of their own, cost a few times the request.
func TestProduceAnswerIsBounded(t *testing.T) {
	const many = 1 << 16
	body := produceBody(1, produceTopicOf("t", many, many, batch.HeaderSize))
	var c produceCall
	n := allocated(func() {
		if err := c.parse(9, body); err != nil {
			t.Fatal(err)
		}
	})
	if n > uint64(2*len(body)) {
		t.Errorf("%d bytes allocated for a body of %d", n, len(body))
	}
	with := 0
	for i := range c.parts {
		c.parts[i].code = 3
		if c.parts[i].message = c.text(fmt.Sprintf("partition %d of a topic with a long name %s", i, strings.Repeat("x", 249)), i); c.parts[i].message != "" {
			with++
		}
	}
	c.encode(9, 1)
	if len(c.out) > 3*len(body) || with < 1000 {
		t.Errorf("%d texts, an answer of %d bytes to a body of %d", with, len(c.out), len(body))
	}
}

// TestSameTextIsHeldOnce: partitions that are refused for the same reason share its text.
func TestSameTextIsHeldOnce(t *testing.T) {
	var c produceCall
	if err := c.parse(9, produceBody(1, produceTopicOf("t", 100, 100, batch.HeaderSize))); err != nil {
		t.Fatal(err)
	}
	for i := range c.parts {
		c.parts[i].message = c.text(fmt.Sprintf("no topic %q", "t"), i)
		if got := c.parts[i].message; got != `no topic "t"` {
			t.Fatalf("the text is %q", got)
		}
		if unsafe.StringData(c.parts[i].message) != unsafe.StringData(c.parts[0].message) {
			t.Fatalf("partition %d has a copy of the text", i)
		}
	}
}

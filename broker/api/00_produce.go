package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/log"
	"stet/broker/replica"
	"stet/zerocopy/batch"
)

// Produce (key 0), versions 3-13; ApiVersions says 0-13 (see 18_api_versions.go).
//
// Validation as Kafka's: acks -1, 0 or 1; exactly one record batch per
// partition, magic 2, CRC, size, codec; sequences of idempotent producers. A
// transactional batch needs a transaction that this broker coordinates, and
// none can be open before transactions are served: INVALID_TXN_STATE. A mirror
// topic that is not stopped answers POLICY_VIOLATION (SPEC section 6). With
// acks=0 there is no response, and an error closes the connection, as Kafka does.
var produce = handler{key: 0, min: 3, max: 13, advertise: -1, direct: serveProduce}

func serveProduce(ctx context.Context, a *API, version int16, correlation int32, body []byte, w Output) error {
	a.Counters.ProduceRequests.Add(1)
	c := producePool.Get().(*produceCall)
	defer c.release()
	if err := c.parse(version, body); err != nil {
		return fmt.Errorf("%s version %d does not parse: %w", kmsg.NameForKey(0), version, err)
	}
	var failed error
	for i := range c.topics {
		t := &c.topics[i]
		for j := t.from; j < t.to; j++ {
			if err := c.parts[j].produce(ctx, a, c.acks, t, version >= versionProduceID); err != nil {
				failed = err
				c.parts[j].message = c.text(c.parts[j].message, j)
			}
		}
	}
	if c.acks == 0 {
		return failed
	}
	c.encode(version, correlation)
	w.Bytes(c.out)
	return w.Flush()
}

// produce appends the batch of one partition and fills in the answer.
func (p *producePartition) produce(ctx context.Context, a *API, acks int16, t *produceTopic, byID bool) error {
	part, err := a.partition(t.name, t.id, byID, p.index)
	var res log.AppendResult
	if err == nil {
		res, err = a.produceTo(ctx, acks, part, p.records)
	}
	if err == nil {
		p.base, p.appendTime, p.logStart = res.FirstOffset, res.LogAppendTime, res.LogStartOffset
		return nil
	}
	p.code, p.message = codeOf(err)
	if part != nil && (p.code == kerr.NotLeaderForPartition.Code || p.code == kerr.FencedLeaderEpoch.Code) {
		s := part.State()
		p.leader, p.leaderEpoch = s.Leader, s.LeaderEpoch
	}
	return err
}

func (a *API) produceTo(ctx context.Context, acks int16, p *replica.Partition, records []byte) (log.AppendResult, error) {
	var none log.AppendResult
	if acks < -1 || acks > 1 {
		return none, replica.Refuse(kerr.InvalidRequiredAcks, "acks is %d; allowed are -1, 0 and 1", acks)
	}
	if err := oneBatch(records); err != nil {
		return none, err
	}
	b := batch.Batch(records)
	if internalTopic(p.Topic) {
		return none, replica.Refuse(kerr.InvalidTopicException, "%s is internal to the broker", p.Topic)
	}
	if err := p.CheckLeader(-1); err != nil {
		return none, err
	}
	if b.IsControl() {
		return none, replica.Refuse(kerr.InvalidRecord, "%s-%d: clients may not write control batches", p.Topic, p.Index)
	}
	if g := p.GateState(); g.Err == nil && b.IsTransactional() {
		return none, replica.Refuse(kerr.InvalidTxnState, "%s-%d: producer %d has no open transaction here", p.Topic, p.Index, b.ProducerID())
	}
	if acks == -1 {
		if n, least := len(p.State().ISR), p.MinISR(); n < least {
			return none, replica.Refuse(kerr.NotEnoughReplicas, "%s-%d: %d in-sync replicas, min.insync.replicas is %d", p.Topic, p.Index, n, least)
		}
	}
	res, err := p.AppendAsLeader(records, log.OriginClient)
	if err != nil {
		return none, err
	}
	if !res.Duplicate {
		a.Counters.ProduceBytes.Add(int64(len(records)))
		a.Counters.ProduceBatches.Add(1)
	}
	if acks == -1 {
		if err := p.WaitCommitted(ctx, res.LastOffset+1); err != nil {
			return none, err
		}
	}
	return res, nil
}

// oneBatch verifies that records are exactly one batch of message format 2.
func oneBatch(records []byte) error {
	if len(records) == 0 {
		return replica.Refuse(kerr.InvalidRecord, "a produce request must hold one record batch per partition, this one holds none")
	}
	_, rest, err := batch.Next(records)
	switch {
	case errors.Is(err, batch.ErrMagic):
		return replica.Refuse(kerr.InvalidRecord, "%v; only message format 2 is taken", err)
	case err != nil:
		return replica.Refuse(kerr.CorruptMessage, "%v", err)
	case len(rest) > 0:
		return replica.Refuse(kerr.InvalidRecord, "a produce request must hold exactly one record batch per partition")
	}
	return nil
}

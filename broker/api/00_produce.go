package api

import (
	"context"
	"errors"

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
var produce = handler{key: 0, min: 3, max: 13, advertise: -1, serve: serveProduce}

func serveProduce(ctx context.Context, a *API, r *Request) (Reply, error) {
	req := r.Msg.(*kmsg.ProduceRequest)
	a.Counters.ProduceRequests.Add(1)
	resp := kmsg.NewPtrProduceResponse()
	resp.Topics = make([]kmsg.ProduceResponseTopic, 0, len(req.Topics))
	var failed error
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, 0, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition = p.Partition
			rp.BaseOffset, rp.LogAppendTime, rp.LogStartOffset = -1, -1, -1
			part, err := a.partition(t.Topic, t.TopicID, r.Version >= 13, p.Partition)
			var res log.AppendResult
			if err == nil {
				res, err = a.produceTo(ctx, req, part, p.Records)
			}
			if err != nil {
				failed = err
				rp.ErrorCode, _ = codeOf(err)
				rp.ErrorMessage = message(err)
				if part != nil && (rp.ErrorCode == kerr.NotLeaderForPartition.Code || rp.ErrorCode == kerr.FencedLeaderEpoch.Code) {
					s := part.State()
					rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = s.Leader, s.LeaderEpoch
				}
			} else {
				rp.BaseOffset, rp.LogAppendTime, rp.LogStartOffset = res.FirstOffset, res.LogAppendTime, res.LogStartOffset
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if req.Acks == 0 {
		if failed != nil {
			return nil, failed
		}
		return nil, nil
	}
	return resp, nil
}

func (a *API) produceTo(ctx context.Context, req *kmsg.ProduceRequest, p *replica.Partition, records []byte) (log.AppendResult, error) {
	var none log.AppendResult
	if req.Acks < -1 || req.Acks > 1 {
		return none, replica.Refuse(kerr.InvalidRequiredAcks, "acks is %d; allowed are -1, 0 and 1", req.Acks)
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
	if req.Acks == -1 {
		if n, least := len(p.State().ISR), a.MinISR(p.Topic); n < least {
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
	if req.Acks == -1 {
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

package scripted

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy/frame"
)

// Call is a request on its way to its answer.
type Call struct {
	Broker int32
	Header frame.RequestHeader
	// Request is decoded, Response what an honest broker answers; a hook may change it. Nil for ApiVersions before it was made.
	Request  kmsg.Request
	Response kmsg.Response
	// Raw, if a hook sets it, is sent as it is instead of the framed response.
	Raw []byte
	// Close ends the connection after what is sent.
	Close bool
	// Stall answers nothing more on the connection.
	Stall bool
	// Pace, if set, is the time between two bytes of what is sent, the four bytes of the size apart.
	Pace time.Duration
}

// Frame is the whole frame that would answer the call now.
func (c *Call) Frame() []byte {
	flexible := c.Response.IsFlexible() && c.Header.Key != int16(kmsg.ApiVersions)
	b := frame.AppendResponseHeader(make([]byte, 4), c.Header.CorrelationID, flexible)
	b = c.Response.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// Hook sees every call after the honest answer was made. It runs on the connection's goroutine, without locks.
type Hook func(c *Call)

// SetHook replaces the hook; nil makes the cluster honest.
func (c *Cluster) SetHook(h Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = h
}

func (b *Broker) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		b.c.mu.Lock()
		if b.c.closed || b.l != l {
			b.c.mu.Unlock()
			conn.Close()
			continue
		}
		b.conns[conn] = true
		b.c.wg.Go(func() { b.serve(conn) })
		b.c.mu.Unlock()
	}
}

func (b *Broker) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		b.c.mu.Lock()
		delete(b.conns, conn)
		b.c.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sess := &fetchSession{}
	for {
		n, err := frame.ReadSize(conn, 64<<20)
		if err != nil {
			return
		}
		buf := make([]byte, n)
		if _, err := io.ReadFull(conn, buf); err != nil {
			return
		}
		call := b.answer(ctx, buf, sess)
		if call == nil {
			return
		}
		out := call.Raw
		if out == nil {
			out = call.Frame()
		}
		if err := b.write(conn, out, call); err != nil || call.Close {
			return
		}
	}
}

// write sends what a call is answered with, as slowly as a hook wants it.
func (b *Broker) write(conn net.Conn, out []byte, call *Call) error {
	whole := len(out)
	if call.Pace > 0 {
		whole = min(whole, 4)
	}
	if _, err := conn.Write(out[:whole]); err != nil {
		return err
	}
	for i := whole; i < len(out); i++ {
		time.Sleep(call.Pace)
		if _, err := conn.Write(out[i : i+1]); err != nil {
			return err
		}
	}
	if call.Stall {
		_, _ = io.Copy(io.Discard, conn) // until the other side or the test closes it
		return io.EOF
	}
	return nil
}

func (b *Broker) answer(_ context.Context, buf []byte, sess *fetchSession) *Call {
	c := b.c
	h, body, err := frame.ParseRequestHeader(buf, func(key, version int16) bool {
		req := kmsg.RequestForKey(key)
		if req == nil {
			return false
		}
		req.SetVersion(version)
		return req.IsFlexible()
	})
	req := kmsg.RequestForKey(h.Key)
	if err != nil || req == nil {
		return nil
	}
	call := &Call{Broker: b.ID, Header: h, Request: req}
	newest, served := c.Versions[h.Key]
	if !served {
		return nil
	}
	if h.Version > newest {
		if h.Key != int16(kmsg.ApiVersions) {
			return nil
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		call.Response = resp
		return call
	}
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil
	}
	switch r := req.(type) {
	case *kmsg.ApiVersionsRequest:
		call.Response = c.apiVersions(r)
	case *kmsg.MetadataRequest:
		call.Response = c.metadata(r)
	case *kmsg.FetchRequest:
		call.Response = b.fetch(r, sess)
	case *kmsg.ListOffsetsRequest:
		call.Response = b.listOffsets(r)
	case *kmsg.OffsetForLeaderEpochRequest:
		call.Response = b.epochEnds(r)
	case *kmsg.DescribeConfigsRequest:
		call.Response = c.describeConfigs(r)
	default:
		return nil
	}
	call.Response.SetVersion(h.Version)
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	if hook != nil {
		hook(call)
	}
	return call
}

func (c *Cluster) apiVersions(r *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.ApiVersionsResponse)
	for key, newest := range c.Versions {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MaxVersion = key, newest
		if key == int16(kmsg.Fetch) {
			k.MinVersion = 4
		}
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

func (c *Cluster) metadata(r *kmsg.MetadataRequest) kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = kmsg.StringPtr(c.ID)
	for _, b := range c.brokers {
		addr, _ := net.ResolveTCPAddr("tcp", b.Addr)
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port = b.ID, "127.0.0.1", int32(addr.Port)
		resp.Brokers = append(resp.Brokers, rb)
	}
	var names []string
	if r.Topics == nil {
		for n := range c.topics {
			names = append(names, n)
		}
	}
	for _, t := range r.Topics {
		if t.Topic != nil {
			names = append(names, *t.Topic)
		}
	}
	for _, n := range names {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic = kmsg.StringPtr(n)
		t := c.topics[n]
		if t == nil {
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, rt)
			continue
		}
		rt.TopicID = t.ID
		for i, l := range t.Logs {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.LeaderEpoch = int32(i), l.Leader, l.Epoch
			rt.Partitions = append(rt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (c *Cluster) describeConfigs(r *kmsg.DescribeConfigsRequest) kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, res := range r.Resources {
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = res.ResourceType, res.ResourceName
		if t := c.topics[res.ResourceName]; t == nil {
			rr.ErrorCode = kerr.UnknownTopicOrPartition.Code
		} else {
			for k, v := range t.Configs {
				cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
				cfg.Name, cfg.Value, cfg.Source = k, kmsg.StringPtr(v), kmsg.ConfigSourceDynamicTopicConfig
				rr.Configs = append(rr.Configs, cfg)
			}
			cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
			cfg.Name, cfg.Value, cfg.Source = "flush.ms", kmsg.StringPtr("7"), kmsg.ConfigSourceDefaultConfig
			rr.Configs = append(rr.Configs, cfg)
		}
		resp.Resources = append(resp.Resources, rr)
	}
	return resp
}

// log finds a partition and checks what a leader checks. The lock is held.
func (b *Broker) log(t *Topic, partition, epoch int32) (*Log, int16) {
	if t == nil || partition < 0 || int(partition) >= len(t.Logs) {
		return nil, kerr.UnknownTopicOrPartition.Code
	}
	l := t.Logs[partition]
	switch {
	case l.Err != 0:
		return nil, l.Err
	case l.Leader != b.ID:
		return nil, kerr.NotLeaderForPartition.Code
	case epoch >= 0 && epoch < l.Epoch:
		return nil, kerr.FencedLeaderEpoch.Code
	case epoch > l.Epoch:
		return nil, kerr.UnknownLeaderEpoch.Code
	}
	return l, 0
}

func (b *Broker) listOffsets(r *kmsg.ListOffsetsRequest) kmsg.Response {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range r.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			l, code := b.log(b.c.topics[t.Topic], p.Partition, p.CurrentLeaderEpoch)
			rp.ErrorCode = code
			if code == 0 {
				rp.LeaderEpoch = l.Epoch
				if rp.Offset = l.HighWatermark(); p.Timestamp == -2 {
					rp.Offset = l.Start
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (b *Broker) epochEnds(r *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range r.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition = p.Partition
			l, code := b.log(b.c.topics[t.Topic], p.Partition, p.CurrentLeaderEpoch)
			rp.ErrorCode = code
			if code == 0 {
				rp.LeaderEpoch, rp.EndOffset = l.epochEnd(p.LeaderEpoch)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// wait returns when something changed or d has passed. The lock is held before and after.
func (c *Cluster) wait(d time.Duration) {
	changed := c.changed
	c.mu.Unlock()
	t := time.NewTimer(d)
	select {
	case <-changed:
	case <-t.C:
	}
	t.Stop()
	c.mu.Lock()
}

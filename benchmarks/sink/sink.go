package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy/batch"
	"stet/zerocopy/frame"
)

// Listener is a running sink.
type Listener struct {
	// OnProduce, if set before the first connection, is called before a Produce request is answered, with its number from 1
	// on. It may block, which stalls the connection, and may close it by answering false.
	OnProduce func(n int64) bool

	l        net.Listener
	produced atomic.Int64
	bytes    atomic.Int64

	mu     sync.Mutex
	wg     sync.WaitGroup
	conns  map[net.Conn]bool
	closed bool
	topics map[string][]atomic.Int64 // log end by partition
}

// versions are the newest that are answered.
var versions = map[int16]int16{int16(kmsg.Produce): 8, int16(kmsg.ListOffsets): 5, int16(kmsg.Metadata): 8, int16(kmsg.ApiVersions): 2, int16(kmsg.CreateTopics): 4}

// maxRequest bounds requests other than Produce.
const maxRequest = 1 << 20

// Listen starts a sink on an address such as 127.0.0.1:0.
func Listen(addr string) (*Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Listener{l: l, conns: map[net.Conn]bool{}, topics: map[string][]atomic.Int64{}}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is where it listens.
func (s *Listener) Addr() string { return s.l.Addr().String() }

// Bytes are the batch bytes so far.
func (s *Listener) Bytes() int64 { return s.bytes.Load() }

// Close ends the listener and all connections.
func (s *Listener) Close() {
	s.mu.Lock()
	s.closed = true
	s.l.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Listener) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = true
		s.wg.Go(func() {
			_ = s.serve(c.(*net.TCPConn)) // why a client went is its business
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
		s.mu.Unlock()
	}
}

func (s *Listener) serve(c *net.TCPConn) error {
	in := &input{c: c}
	var err error
	if in.raw, err = c.SyscallConn(); err != nil {
		return err
	}
	for {
		head, err := in.peek(8)
		if err != nil {
			return err
		}
		size := int(int32(binary.BigEndian.Uint32(head)))
		if size < 8 {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		var out []byte
		if key := int16(binary.BigEndian.Uint16(head[4:])); key == int16(kmsg.Produce) {
			out, err = s.produce(in, 4+size)
		} else if size > maxRequest {
			err = fmt.Errorf("a frame of %d bytes", size)
		} else {
			var body []byte
			if body, err = in.take(4 + size); err == nil {
				out, err = s.other(body[4:])
			}
		}
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}

// produce reads what precedes the records, throws them away and makes the answer; nil with acks=0.
func (s *Listener) produce(in *input, size int) ([]byte, error) {
	b, err := in.peek(min(size, headBytes))
	if err != nil {
		return nil, err
	}
	p, err := parseProduce(b[4:])
	if err != nil {
		return nil, err
	}
	if err := in.discard(size); err != nil {
		return nil, err
	}
	s.bytes.Add(int64(p.size))
	base := int64(-1)
	s.mu.Lock()
	parts := s.topics[p.topic]
	s.mu.Unlock()
	code := kerr.UnknownTopicOrPartition.Code
	if p.partition >= 0 && int(p.partition) < len(parts) {
		base, code = parts[p.partition].Add(int64(p.records))-int64(p.records), 0
	}
	if n := s.produced.Add(1); s.OnProduce != nil && !s.OnProduce(n) {
		return nil, errors.New("asked to close")
	}
	if p.acks == 0 {
		return nil, nil
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = p.version
	t, rp := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
	t.Topic, rp.Partition, rp.BaseOffset, rp.ErrorCode, rp.LogStartOffset = p.topic, p.partition, base, code, 0
	t.Partitions = append(t.Partitions, rp)
	resp.Topics = append(resp.Topics, t)
	return answer(p.correlation, resp), nil
}

func answer(correlation int32, resp kmsg.Response) []byte {
	out := frame.AppendResponseHeader(make([]byte, 4, 128), correlation, false)
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// headBytes hold a request's header, a topic name of the greatest length and a batch's header.
const headBytes = 1024

type produceHead struct {
	version     int16
	correlation int32
	acks        int16
	topic       string
	partition   int32
	size        int
	records     int32
}

// parseProduce reads a request of one batch, versions 3 to 8, up to the records.
func parseProduce(b []byte) (p produceHead, err error) {
	r := kbin.Reader{Src: b}
	r.Int16() // key
	p.version, p.correlation = r.Int16(), r.Int32()
	if p.version < 3 || p.version > versions[int16(kmsg.Produce)] {
		return p, fmt.Errorf("version %d of Produce", p.version)
	}
	r.NullableString() // client
	r.NullableString() // transactional id
	p.acks = r.Int16()
	r.Int32() // timeout
	topics := r.Int32()
	p.topic = r.String()
	parts := r.Int32()
	p.partition, p.size = r.Int32(), int(r.Int32())
	head := batch.Batch(r.Span(batch.HeaderSize))
	if !r.Ok() || topics != 1 || parts != 1 {
		return p, errors.New("a Produce request of one batch is expected")
	}
	p.records = head.NumRecords()
	return p, nil
}

func (s *Listener) other(b []byte) ([]byte, error) {
	h, body, err := frame.ParseRequestHeader(b, func(key, version int16) bool {
		req := kmsg.RequestForKey(key)
		if req == nil {
			return false
		}
		req.SetVersion(version)
		return req.IsFlexible()
	})
	if err != nil {
		return nil, err
	}
	req := kmsg.RequestForKey(h.Key)
	newest, known := versions[h.Key]
	switch {
	case known && h.Version > newest && h.Key == int16(kmsg.ApiVersions):
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		return answer(h.CorrelationID, resp), nil
	case !known || h.Version > newest:
		return nil, fmt.Errorf("key %d version %d is not served", h.Key, h.Version)
	}
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	switch r := req.(type) {
	case *kmsg.ApiVersionsRequest:
		for key, v := range versions {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, v
			resp.(*kmsg.ApiVersionsResponse).ApiKeys = append(resp.(*kmsg.ApiVersionsResponse).ApiKeys, k)
		}
	case *kmsg.MetadataRequest:
		s.metadata(r, resp.(*kmsg.MetadataResponse))
	case *kmsg.CreateTopicsRequest:
		s.create(r, resp.(*kmsg.CreateTopicsResponse))
	case *kmsg.ListOffsetsRequest:
		s.listOffsets(r, resp.(*kmsg.ListOffsetsResponse))
	}
	return answer(h.CorrelationID, resp), nil
}

// CreateTopic makes a topic that can be produced to.
func (s *Listener) CreateTopic(name string, partitions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[name] == nil {
		s.topics[name] = make([]atomic.Int64, partitions)
	}
}

func (s *Listener) create(r *kmsg.CreateTopicsRequest, resp *kmsg.CreateTopicsResponse) {
	for _, t := range r.Topics {
		s.CreateTopic(t.Topic, int(max(1, t.NumPartitions)))
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = t.Topic
		resp.Topics = append(resp.Topics, rt)
	}
}

func (s *Listener) metadata(r *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	addr := s.l.Addr().(*net.TCPAddr)
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port = 1, addr.IP.String(), int32(addr.Port)
	resp.Brokers, resp.ControllerID = append(resp.Brokers, b), 1
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, want := range r.Topics {
		if want.Topic == nil {
			continue
		}
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = want.Topic
		parts, ok := s.topics[*want.Topic]
		if !ok {
			t.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		for i := range parts {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.Replicas, p.ISR = int32(i), 1, []int32{1}, []int32{1}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
}

func (s *Listener) listOffsets(r *kmsg.ListOffsetsRequest, resp *kmsg.ListOffsetsResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range r.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			if parts := s.topics[t.Topic]; int(p.Partition) < len(parts) {
				rp.Offset = parts[p.Partition].Load()
			} else {
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

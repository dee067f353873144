package rawloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/zerocopy"
	"stet/zerocopy/batch"
	"stet/zerocopy/frame"
)

// Options say what Receive takes and how.
type Options struct {
	// Addr is a broker that leads all partitions of Topic.
	Addr, Topic string
	// Dir gets a file per partition; empty: nothing is written.
	Dir string
	// MaxBytes bounds a response, PartitionMaxBytes the part of one partition; 0: 10 MiB and 1 MiB, the defaults
	// of a mirror.
	MaxBytes, PartitionMaxBytes int32
	// Limit ends the run after so many bytes of batches; 0: at the end of the topic.
	Limit int64
	// Write says how bytes are written.
	Write Write
	// Stream, if set, is the size of the buffer through which responses are streamed; 0: whole responses are
	// received first.
	Stream int
}

// Result is what was done.
type Result struct {
	Partitions int
	Bytes      int64 // of whole batches
	Batches    int64
	Responses  int64
	Writes     int64
	Took       time.Duration
}

const (
	fetchVersion = 13
	readTimeout  = time.Minute
	poolBytes    = 256 << 20
)

type partition struct {
	id       int32
	next     int64
	pos      int64
	reserved int64 // up to here there is file space
	file     *os.File
	records  []byte // of the present response
}

type receiver struct {
	o         Options
	conn      net.Conn
	formatter *kmsg.RequestFormatter
	reader    frame.Reader
	buf       []byte
	id        int32
	topicID   [16]byte
	parts     []*partition
	req       kmsg.FetchRequest
	rotate    int
	res       Result
}

// Receive copies a topic from its start to where it ends, once. The topic must not
// grow meanwhile.
func Receive(ctx context.Context, o Options) (Result, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 10 << 20
	}
	if o.PartitionMaxBytes == 0 {
		o.PartitionMaxBytes = 1 << 20
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := &receiver{
		o: o, conn: conn, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("rawloop")), req: kmsg.NewFetchRequest(),
		reader: frame.Reader{R: conn, Pool: zerocopy.NewPool(poolBytes), Limit: 128 << 20, Eager: 128 << 20},
	}
	if err := r.open(ctx); err != nil {
		return Result{}, err
	}
	start := time.Now()
	if o.Stream > 0 {
		err = r.runStreaming(ctx)
	} else {
		err = r.run(ctx)
	}
	r.res.Took = time.Since(start)
	for _, p := range r.parts {
		if p.file != nil {
			err = errors.Join(err, p.file.Close())
		}
	}
	return r.res, err
}

// open learns the topic's id and partitions and makes the files.
func (r *receiver) open(ctx context.Context) error {
	m := kmsg.NewPtrMetadataRequest()
	m.SetVersion(12)
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &r.o.Topic
	m.Topics = append(m.Topics, t)
	var resp kmsg.MetadataResponse
	if err := r.ask(ctx, m, &resp, 12); err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("topic %s is not in the metadata", r.o.Topic)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return fmt.Errorf("topic %s: %w", r.o.Topic, err)
	}
	r.topicID = resp.Topics[0].TopicID
	r.parts = make([]*partition, len(resp.Topics[0].Partitions))
	for i := range r.parts {
		p := &partition{id: int32(i)}
		if r.o.Dir != "" {
			f, err := os.Create(filepath.Join(r.o.Dir, fmt.Sprintf("%s-%d.log", r.o.Topic, i)))
			if err != nil {
				return err
			}
			p.file = f
		}
		r.parts[i] = p
	}
	r.res.Partitions = len(r.parts)
	return nil
}

func (r *receiver) ask(ctx context.Context, req kmsg.Request, resp kmsg.Response, version int16) error {
	if err := r.write(req); err != nil {
		return err
	}
	lease, body, err := r.read(ctx)
	if err != nil {
		return err
	}
	defer lease.Release()
	resp.SetVersion(version)
	return resp.ReadFrom(bytes.Clone(body))
}

func (r *receiver) write(req kmsg.Request) error {
	r.id++
	r.buf = r.formatter.AppendRequest(r.buf[:0], req, r.id)
	_, err := r.conn.Write(r.buf)
	return err
}

func (r *receiver) read(ctx context.Context) (zerocopy.Lease, []byte, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return zerocopy.Lease{}, nil, err
	}
	lease, err := r.reader.Next(ctx)
	if err != nil {
		return lease, nil, err
	}
	id, body, err := frame.ParseResponseHeader(lease.Bytes(), true)
	if err == nil && id != r.id {
		err = fmt.Errorf("correlation id %d instead of %d", id, r.id)
	}
	if err != nil {
		lease.Release()
		return zerocopy.Lease{}, nil, err
	}
	return lease, body, nil
}

// fetch asks for every partition, each time beginning with another one.
func (r *receiver) fetch() error {
	q := &r.req
	q.SetVersion(fetchVersion)
	q.ReplicaID, q.SessionEpoch = -1, -1
	q.MinBytes, q.MaxBytes = 0, r.o.MaxBytes
	if len(q.Topics) == 0 {
		q.Topics = append(q.Topics, kmsg.NewFetchRequestTopic())
	}
	t := &q.Topics[0]
	t.TopicID = r.topicID
	t.Partitions = t.Partitions[:0]
	for i := range r.parts {
		p := r.parts[(i+r.rotate)%len(r.parts)]
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.LogStartOffset, rp.PartitionMaxBytes = p.id, p.next, -1, r.o.PartitionMaxBytes
		t.Partitions = append(t.Partitions, rp)
	}
	return r.write(q)
}

// run fetches until a response brings nothing.
func (r *receiver) run(ctx context.Context) error {
	if err := r.fetch(); err != nil {
		return err
	}
	var w frame.FetchWalker
	served := make([]*partition, 0, len(r.parts))
	for {
		lease, body, err := r.read(ctx)
		if err != nil {
			return err
		}
		r.res.Responses++
		if served, err = r.walk(&w, body, served[:0]); err != nil {
			return err
		}
		if len(served) == 0 {
			lease.Release()
			return nil
		}
		enough := r.o.Limit > 0 && r.res.Bytes >= r.o.Limit
		if !enough { // the next request leaves before this response is stored
			if err := r.fetch(); err != nil {
				return err
			}
		}
		for _, p := range served {
			if err := r.store(p); err != nil {
				return err
			}
		}
		lease.Release()
		if enough {
			return nil
		}
	}
}

// walk finds the whole batches and moves the partitions on.
func (r *receiver) walk(w *frame.FetchWalker, body []byte, served []*partition) ([]*partition, error) {
	if err := w.Reset(body, fetchVersion); err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(w.ErrorCode); err != nil {
		return nil, err
	}
	var fp frame.FetchPartition
	for w.Next(&fp) {
		if err := kerr.ErrorForCode(fp.ErrorCode); err != nil {
			return nil, fmt.Errorf("partition %d: %w", fp.Partition, err)
		}
		if fp.Partition < 0 || int(fp.Partition) >= len(r.parts) {
			return nil, fmt.Errorf("partition %d was not asked for", fp.Partition)
		}
		p, used := r.parts[fp.Partition], 0
		for rest := fp.Records; len(rest) > 0; {
			b, after, err := batch.Next(rest)
			if errors.Is(err, batch.ErrIncomplete) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("partition %d: %w", p.id, err)
			}
			used += len(b)
			p.next = b.NextOffset()
			r.res.Batches++
			rest = after
		}
		if used > 0 {
			p.records = fp.Records[:used]
			r.res.Bytes += int64(used)
			served = append(served, p)
		}
	}
	if len(served) > 0 { // who was served goes to the end
		r.rotate = int(served[len(served)-1].id) + 1
	}
	return served, w.Err()
}

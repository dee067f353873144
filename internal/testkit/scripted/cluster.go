package scripted

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/testkit/port"
	"stet/zerocopy/batch"
)

// Cluster is a source cluster: brokers that listen on loopback and logs of real batches.
type Cluster struct {
	ID string
	// Versions are the newest versions that are advertised, by key; a key that is absent is not served.
	Versions map[int16]int16
	// Impatient answers every fetch at once, with whatever there is. Changed with Change only.
	Impatient bool

	mu      sync.Mutex
	wg      sync.WaitGroup
	closed  bool
	changed chan struct{} // closed and replaced when a log changes
	brokers []*Broker
	topics  map[string]*Topic
	hook    Hook
	made    int
}

// Broker is one listener of a cluster.
type Broker struct {
	ID   int32
	Addr string

	c     *Cluster
	l     net.Listener
	piped bool // reached by Dial only
	down  bool
	conns map[net.Conn]bool
}

// Topic is a topic with its logs.
type Topic struct {
	Name    string
	ID      [16]byte
	Configs map[string]string
	Logs    []*Log
}

// Log is one partition. Its fields are changed with Cluster.Change only.
type Log struct {
	Leader  int32
	Epoch   int32
	Start   int64
	Batches [][]byte
	// Hidden is how many batches at the end are above the high watermark.
	Hidden int
	// Err is answered instead of data.
	Err int16
	// Open, if set, is the first offset of the earliest open transaction, the last stable offset; nil: the high watermark is.
	Open *int64
}

// NewCluster starts brokers 1..n that listen on loopback. It ends with the test.
func NewCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := newCluster(t, n)
	for _, b := range c.brokers { // all of them, before anybody can ask for one
		b.Addr = port.Hold(t)
	}
	for _, b := range c.brokers {
		b.listen(t)
	}
	return c
}

// NewPiped makes a cluster without a network: Dial is the only way to reach it. In a bubble of
// testing/synctest it keeps the bubble's time.
func NewPiped(t testing.TB, n int) *Cluster {
	t.Helper()
	c := newCluster(t, n)
	for i, b := range c.brokers {
		b.Addr, b.piped = fmt.Sprintf("127.0.0.1:%d", i+1), true
	}
	return c
}

func newCluster(t testing.TB, n int) *Cluster {
	c := &Cluster{
		ID: fmt.Sprintf("source-%x", sha256.Sum256([]byte(t.Name())))[:22], changed: make(chan struct{}), topics: map[string]*Topic{},
		Versions: map[int16]int16{
			int16(kmsg.Fetch): 17, int16(kmsg.ListOffsets): 8, int16(kmsg.Metadata): 12, int16(kmsg.ApiVersions): 3,
			int16(kmsg.OffsetForLeaderEpoch): 4, int16(kmsg.DescribeConfigs): 4,
		},
	}
	for i := range n {
		c.brokers = append(c.brokers, &Broker{ID: int32(i + 1), c: c, conns: map[net.Conn]bool{}})
	}
	t.Cleanup(c.Close)
	return c
}

// Dial connects to a broker of a piped cluster.
func (c *Cluster) Dial(_ context.Context, _, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.brokers {
		if b.piped && !b.down && b.Addr == addr && !c.closed {
			ours, theirs := net.Pipe()
			b.conns[ours] = true
			c.wg.Go(func() { b.serve(ours) })
			return theirs, nil
		}
	}
	return nil, syscall.ECONNREFUSED
}

func (b *Broker) listen(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", b.Addr)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	b.c.mu.Lock()
	b.l = l
	b.c.mu.Unlock()
	b.c.wg.Go(func() { b.accept(l) })
}

// Close ends the cluster and waits for its goroutines.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	c.notify()
	c.mu.Unlock()
	for _, b := range c.brokers {
		b.Down()
	}
	c.wg.Wait()
}

// Bootstrap is the address of broker 1.
func (c *Cluster) Bootstrap() string { return c.brokers[0].Addr }

// Broker returns a broker by id.
func (c *Cluster) Broker(id int32) *Broker { return c.brokers[id-1] }

// Down closes the listener and all connections of a broker.
func (b *Broker) Down() {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.down = true
	if b.l != nil {
		b.l.Close()
		b.l = nil
	}
	for conn := range b.conns {
		conn.Close()
	}
}

// Up makes a broker listen at its address again.
func (b *Broker) Up(t testing.TB) {
	t.Helper()
	b.c.Change(func() { b.down = false })
	if !b.piped {
		b.listen(t)
	}
}

// CreateTopic makes a topic whose partitions are led by the brokers in turn, at epoch 0.
func (c *Cluster) CreateTopic(name string, partitions int) *Topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.CreateTopicLocked(name, partitions)
}

// CreateTopicLocked is CreateTopic inside of Change.
func (c *Cluster) CreateTopicLocked(name string, partitions int) *Topic {
	c.made++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", c.ID, name, c.made))
	t := &Topic{Name: name, ID: [16]byte(sum[:16]), Configs: map[string]string{}}
	for i := range partitions {
		t.Logs = append(t.Logs, &Log{Leader: int32(i%len(c.brokers) + 1)})
	}
	c.topics[name] = t
	return t
}

// DeleteTopic removes a topic.
func (c *Cluster) DeleteTopic(name string) {
	c.Change(func() { delete(c.topics, name) })
}

// Change runs f with the cluster locked and wakes the waiting fetches.
func (c *Cluster) Change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.notify()
}

func (c *Cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Produce appends a batch with n records of about size bytes each to a partition and returns the batch.
func (c *Cluster) Produce(t *Topic, partition int32, n, size int) []byte {
	var b []byte
	c.Change(func() {
		l := t.Logs[partition]
		kvs := make([]batch.KV, n)
		for i := range kvs {
			v := make([]byte, size)
			for j := range v {
				v[j] = byte(int(l.End()) + i + j)
			}
			kvs[i].Value = v
		}
		b = batch.Build(nil, batch.Header{
			BaseOffset: l.End(), PartitionLeaderEpoch: l.Epoch, Timestamp: 1_700_000_000_000 + l.End(),
			ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
		}, kvs...)
		l.Batches = append(l.Batches, b)
	})
	return b
}

// Append appends ready batches.
func (c *Cluster) Append(t *Topic, partition int32, batches ...[]byte) {
	c.Change(func() { t.Logs[partition].Batches = append(t.Logs[partition].Batches, batches...) })
}

// Bytes are all batches of a partition.
func (c *Cluster) Bytes(t *Topic, partition int32) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []byte
	for _, b := range t.Logs[partition].Batches {
		out = append(out, b...)
	}
	return out
}

// End is the log end offset.
func (l *Log) End() int64 {
	if n := len(l.Batches); n > 0 {
		return batch.Batch(l.Batches[n-1]).NextOffset()
	}
	return l.Start
}

// HighWatermark is the end of what consumers may see.
func (l *Log) HighWatermark() int64 {
	if n := len(l.Batches) - l.Hidden; l.Hidden > 0 && n > 0 {
		return batch.Batch(l.Batches[n-1]).NextOffset()
	} else if l.Hidden > 0 {
		return l.Start
	}
	return l.End()
}

// TruncateTo drops the batches that reach beyond offset.
func (l *Log) TruncateTo(offset int64) {
	for len(l.Batches) > 0 && batch.Batch(l.Batches[len(l.Batches)-1]).NextOffset() > offset {
		l.Batches = l.Batches[:len(l.Batches)-1]
	}
}

// epochEnd is the answer of OffsetForLeaderEpoch: the largest epoch up to the asked one, and its end.
func (l *Log) epochEnd(asked int32) (epoch int32, end int64) {
	if asked > l.Epoch {
		return -1, -1
	}
	if asked == l.Epoch {
		return asked, l.End()
	}
	if len(l.Batches) > 0 && asked < batch.Batch(l.Batches[0]).PartitionLeaderEpoch() {
		return asked, l.Start // expired: answered all the same
	}
	epoch, end = -1, -1
	for _, raw := range l.Batches {
		b := batch.Batch(raw)
		if e := b.PartitionLeaderEpoch(); e <= asked {
			epoch, end = e, b.NextOffset()
		} else {
			return epoch, end
		}
	}
	return epoch, end
}

// read returns batches from offset on as a broker does: at most max bytes, cut off in the middle of a batch, but
// the first one whole if the response has nothing else.
func (l *Log) read(offset int64, limit int, whole bool) []byte {
	var out []byte
	for _, raw := range l.Batches[:len(l.Batches)-l.Hidden] {
		b := batch.Batch(raw)
		if b.NextOffset() <= offset {
			continue
		}
		if len(out)+len(b) > limit {
			if len(out) == 0 && whole {
				return append(out, b...)
			}
			return append(out, b[:max(limit-len(out), 0)]...)
		}
		out = append(out, b...)
	}
	return out
}

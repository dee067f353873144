package source_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
	"stet/fetcher/source"
	"stet/internal/testkit/port"
	"stet/internal/testkit/scripted"
)

func newSource(t *testing.T, bootstrap ...string) *source.Source {
	s := source.New(source.Options{Mirror: "m", BrokerID: 3, Bootstrap: bootstrap, RequestTimeout: time.Minute, DialTimeout: time.Minute})
	t.Cleanup(s.Close)
	return s
}

func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

func TestWrongPortsAreNamed(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	defer secure.Close()
	silent := listener(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	hangup := listener(t, func(c net.Conn) { c.Close() })
	ssh := listener(t, func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-x\r\n"); _, _ = io.Copy(io.Discard, c) })
	closed := port.Hold(t)
	impatient := func(bootstrap ...string) *source.Source {
		s := source.New(source.Options{Mirror: "m", BrokerID: 3, Bootstrap: bootstrap, DialTimeout: 3 * time.Second})
		t.Cleanup(s.Close)
		return s
	}
	var wg sync.WaitGroup
	host := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for addr, want := range map[string]string{
		host(web):    " does not speak the Kafka protocol: it answered with HTTP",
		host(secure): "TLS",
		silent:       " accepts connections but does not answer",
		hangup:       " closed the connection during the first request",
		ssh:          ` does not speak the Kafka protocol: its answer begins with "SSH-"`,
		closed:       "connection refused",
	} {
		wg.Go(func() {
			s := newSource(t, addr)
			if addr == silent {
				s = impatient(addr)
			}
			_, err := s.ClusterID(context.Background())
			if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v; want %q", addr, err, want)
			}
		})
	}
	wg.Go(func() {
		_, err := impatient(closed, silent).ClusterID(context.Background())
		if err == nil || !strings.Contains(err.Error(), closed) || !strings.Contains(err.Error(), silent) {
			t.Errorf("two addresses: %v", err)
		}
	})
	wg.Wait()
}

func TestMetadataAndConfigs(t *testing.T) {
	c := scripted.NewCluster(t, 2)
	tp := c.CreateTopic("orders", 3)
	c.CreateTopic("other", 1)
	tp.Configs["cleanup.policy"] = "compact"
	// the first address is dead: the second is used
	s := newSource(t, "127.0.0.1:1", c.Bootstrap())
	ctx := context.Background()
	topics, err := s.Topics(ctx, []string{"orders", "none"})
	if err != nil {
		t.Fatal(err)
	}
	if len(topics) != 2 || topics[0].ID != tp.ID || len(topics[0].Partitions) != 3 || topics[0].Partitions[1].Leader != 2 || topics[0].Err != nil {
		t.Errorf("topics %+v", topics)
	}
	if !errors.Is(topics[1].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("unknown topic: %v", topics[1].Err)
	}
	if all, err := s.Topics(ctx, nil); err != nil || len(all) != 2 {
		t.Errorf("all topics: %v %v", all, err)
	}
	if id, err := s.ClusterID(ctx); err != nil || id != c.ID {
		t.Errorf("cluster id %q %v", id, err)
	}
	configs, errs, err := s.TopicConfigs(ctx, []string{"orders", "none"})
	if err != nil || len(configs["orders"]) != 1 || configs["orders"][0] != (source.Config{Name: "cleanup.policy", Value: "compact"}) || errs["none"] == nil {
		t.Errorf("configs %v %v %v", configs, errs, err)
	}
}

func TestOffsetsAndEpochs(t *testing.T) {
	c := scripted.NewCluster(t, 2)
	tp := c.CreateTopic("t", 2)
	c.Produce(tp, 1, 10, 10)
	c.Change(func() { tp.Logs[1].Epoch, tp.Logs[1].Start = 4, 2 })
	c.Produce(tp, 1, 10, 10)
	s := newSource(t, c.Bootstrap())
	ctx := context.Background()
	ask := func(ts int64, epoch int32) source.OffsetAnswer {
		a, err := s.Offset(ctx, 2, source.OffsetQuestion{Topic: "t", Partition: 1, LeaderEpoch: epoch, Timestamp: ts})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(source.Earliest, 4); a.Offset != 2 || a.Err != nil {
		t.Errorf("earliest %+v", a)
	}
	if a := ask(source.Latest, -1); a.Offset != 20 {
		t.Errorf("latest %+v", a)
	}
	if a := ask(source.Latest, 3); !errors.Is(a.Err, kerr.FencedLeaderEpoch) {
		t.Errorf("old epoch: %+v", a)
	}
	for epoch, want := range map[int32]source.EpochAnswer{0: {Epoch: 0, EndOffset: 10}, 3: {Epoch: 0, EndOffset: 10}, 4: {Epoch: 4, EndOffset: 20}, 9: {Epoch: -1, EndOffset: -1}} {
		a, err := s.EpochEnd(ctx, 2, source.EpochQuestion{Topic: "t", Partition: 1, LeaderEpoch: 4, Epoch: epoch})
		if err != nil || a != want {
			t.Errorf("epoch %d: %+v %v, want %+v", epoch, a, err, want)
		}
	}
	if a, err := s.EpochEnd(ctx, 1, source.EpochQuestion{Topic: "t", Partition: 1, LeaderEpoch: 4, Epoch: 0}); err != nil || !errors.Is(a.Err, kerr.NotLeaderForPartition) {
		t.Errorf("another broker: %+v %v", a, err)
	}
	if _, err := s.EpochEnd(ctx, 77, source.EpochQuestion{Topic: "t"}); err == nil || !strings.Contains(err.Error(), "77") {
		t.Errorf("unknown broker: %v", err)
	}
}

func TestQuestionsAreJoined(t *testing.T) {
	c := scripted.NewCluster(t, 1)
	tp := c.CreateTopic("t", 200)
	for p := range tp.Logs {
		c.Produce(tp, int32(p), p+1, 10)
	}
	var requests atomic.Int32
	c.SetHook(func(call *scripted.Call) {
		if call.Header.Key == int16(kmsg.ListOffsets) {
			requests.Add(1)
		}
	})
	s := newSource(t, c.Bootstrap())
	var wg sync.WaitGroup
	for p := range tp.Logs {
		wg.Go(func() {
			for _, ts := range []int64{source.Latest, source.Earliest} {
				a, err := s.Offset(context.Background(), 1, source.OffsetQuestion{Topic: "t", Partition: int32(p), LeaderEpoch: -1, Timestamp: ts})
				want := int64(0)
				if ts == source.Latest {
					want = int64(p + 1)
				}
				if err != nil || a.Err != nil || a.Offset != want {
					t.Errorf("partition %d: %+v %v", p, a, err)
				}
			}
		})
	}
	wg.Wait()
	if n := requests.Load(); n > 100 {
		t.Errorf("400 questions took %d requests", n)
	}
}

func TestStaleConnectionIsReplaced(t *testing.T) {
	c := scripted.NewCluster(t, 1)
	s := newSource(t, c.Bootstrap())
	for range 3 {
		if _, err := s.ClusterID(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.Broker(1).Down()
		c.Broker(1).Up(t)
	}
}

func TestSourceWithoutMirrors(t *testing.T) {
	c := scripted.NewCluster(t, 1)
	s := newSource(t, c.Bootstrap())
	req := mirrormsg.NewPtrDescribeMirrorsRequest()
	if _, ok, err := s.DescribeMirrors(context.Background(), req); ok || err != nil {
		t.Errorf("ok %v, %v", ok, err)
	}
}

func TestOldBrokers(t *testing.T) {
	c := scripted.NewCluster(t, 1)
	c.Versions[int16(kmsg.ApiVersions)] = 0
	c.Versions[int16(kmsg.Metadata)] = 5
	tp := c.CreateTopic("t", 1)
	s := newSource(t, c.Bootstrap())
	topics, err := s.Topics(context.Background(), []string{"t"})
	if err != nil || topics[0].ID != ([16]byte{}) || topics[0].Partitions[0].LeaderEpoch != -1 {
		t.Errorf("%+v %v", topics, err)
	}
	_ = tp
	c.Versions[int16(kmsg.Fetch)] = 3
	if _, err := newSource(t, c.Bootstrap()).Connect(context.Background(), 1, 0); err == nil || !strings.Contains(err.Error(), "Fetch") {
		t.Errorf("fetch v3: %v", err)
	}
}

func TestCancelledQuestionReturns(t *testing.T) {
	silent := listener(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	s := source.New(source.Options{Bootstrap: []string{silent}, DialTimeout: time.Hour, RequestTimeout: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { _, err := s.ClusterID(ctx); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { _, err := s.ClusterID(context.Background()); done <- err }()
	s.Close()
	if err := <-done; err == nil {
		t.Error("no error after Close")
	}
}

func TestConfig(t *testing.T) {
	var o source.Options
	err := o.ReadConfig(map[string]string{"bootstrap.servers": "a:9092, [::1]:9093", "request.timeout.ms": "1500", "mirror.topics.include": ".*", "security.protocol": "PLAINTEXT", "socket.receive.buffer.bytes": "-1"})
	if err != nil || len(o.Bootstrap) != 2 || o.RequestTimeout != 1500*time.Millisecond {
		t.Errorf("%+v %v", o, err)
	}
	for _, bad := range []map[string]string{
		{},
		{"bootstrap.servers": ""},
		{"bootstrap.servers": "hostonly"},
		{"bootstrap.servers": "h:99999"},
		{"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL"},
		{"bootstrap.servers": "h:1", "sasl.mechanism": "PLAIN"},
		{"bootstrap.servers": "h:1", "ssl.truststore.location": "/x"},
		{"bootstrap.servers": "h:1", "request.timeout.ms": "soon"},
	} {
		var o source.Options
		err := o.ReadConfig(bad)
		if !errors.Is(err, source.ErrConfig) {
			t.Errorf("%v: %v", bad, err)
			continue
		}
		for k := range bad {
			if k != "bootstrap.servers" && !strings.Contains(err.Error(), k) {
				t.Errorf("%v: %v does not name the key", bad, err)
			}
		}
	}
}

package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"stet/broker/api"
	"stet/broker/controller"
	"stet/broker/log"
	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
	"stet/broker/quorum"
	"stet/broker/replica"
	"stet/broker/server"
	"stet/internal/clock"
	"stet/metrics"
)

// metadataDir is where the quorum keeps its files, below the first log directory.
const metadataDir = "stet-metadata"

// Broker is a running broker.
type Broker struct {
	cfg     *Config
	node    int32
	logger  *slog.Logger
	version string

	listeners []boundListener
	quorum    *quorum.Quorum
	logs      *log.Manager
	replicas  atomic.Pointer[replica.Manager]
	control   *controller.Controller
	api       *api.API
	server    *server.Server
	metrics   *metrics.Registry
	coords    *coordinators
	mirrors   *mirrors
	http      *httpServer

	internalMu sync.Mutex
	ready      atomic.Bool
	cancel     context.CancelFunc
	background sync.WaitGroup
	closeOnce  sync.Once
}

type boundListener struct {
	listener
	ln net.Listener
}

// Start runs a broker. On an error everything that was started is stopped again.
func Start(ctx context.Context, cfg *Config, logger *slog.Logger, version string) (*Broker, error) {
	b := &Broker{cfg: cfg, node: cfg.NodeID(), logger: logger, version: version, metrics: metrics.New()}
	bctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	for _, w := range cfg.Warnings {
		logger.Warn(w)
	}
	if err := b.start(ctx, bctx); err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return b, nil
}

// start brings up the parts in order; bctx ends at Close.
func (b *Broker) start(ctx, bctx context.Context) error {
	if err := b.bind(); err != nil {
		return err
	}
	if err := b.openMetadata(); err != nil {
		return err
	}
	b.control = controller.New(b.quorum, controller.Env{Logger: b.logger, StaticConfig: b.cfg.Static, BrokerID: b.node})
	if err := b.openLogs(ctx); err != nil {
		return err
	}
	// Registered first: a new incarnation raises the leader epochs of what is led
	// here, and coordinators and mirrors then begin with the new ones.
	if err := b.register(ctx); err != nil {
		return err
	}
	b.startCoordinators(bctx)
	b.startMirrors()
	b.startAPI()
	b.background.Add(1)
	go func() { defer b.background.Done(); b.logs.Run(bctx) }()
	b.metrics.Source(b.collect)
	if err := b.startHTTP(); err != nil {
		return err
	}
	for _, l := range b.listeners {
		b.server.Serve(l.name, l.ln)
	}
	b.ready.Store(true)
	return nil
}

func (b *Broker) bind() error {
	ls, err := b.cfg.listeners()
	if err != nil {
		return err
	}
	for _, l := range ls {
		ln, err := server.Listen(l.bind)
		if err != nil {
			return err
		}
		if l.advPort == "0" {
			l.advPort = strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
		}
		b.listeners = append(b.listeners, boundListener{l, ln})
	}
	return nil
}

// openMetadata refuses directories that are not ours before it writes anything.
func (b *Broker) openMetadata() error {
	dir := b.cfg.LogDirs()[0]
	mdir := filepath.Join(dir, metadataDir)
	if exists(filepath.Join(dir, "meta.properties")) {
		if _, err := os.Stat(mdir); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("log.dirs: %s has meta.properties but no %s: it is of another broker, or not the first of log.dirs any more; give Stet a directory of its own, or name the one with the metadata first", dir, metadataDir)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("log.dirs: %w", err)
	}
	q, err := quorum.Open(quorum.Options{Dir: mdir, NodeID: b.node, Logger: b.logger, OnCommit: b.onCommit})
	if err != nil {
		return fmt.Errorf("log.dirs: %s: %w", dir, err)
	}
	b.quorum = q
	if q.Image().Offset() == 0 {
		if what := b.traces(); what != "" {
			return fmt.Errorf("log.dirs: %s holds no metadata, but %s says that there were some; put them back, or give Stet directories of its own", mdir, what)
		}
	}
	return nil
}

// traces is a file of ours that only a broker with metadata leaves, "" if there is none.
func (b *Broker) traces() string {
	for _, dir := range b.cfg.LogDirs() {
		if props := filepath.Join(dir, "meta.properties"); exists(props) {
			return props
		}
		entries, _ := os.ReadDir(dir) // one that cannot be read is told of when the logs are opened
		for _, e := range entries {
			if of := filepath.Join(dir, e.Name(), log.IncarnationFile); e.IsDir() && exists(of) {
				return of
			}
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (b *Broker) openLogs(ctx context.Context) error {
	id, err := b.clusterID(ctx)
	if err != nil {
		return err
	}
	img := b.quorum.Image()
	b.logs, err = log.OpenManager(log.ManagerOptions{
		FS: b.cfg.logFS, Dirs: b.cfg.LogDirs(), NodeID: b.node, ClusterID: id, Clock: clock.System, Logger: b.logger,
		ProducerIDExpirationMs: int64(b.live("producer.id.expiration.ms")()), RetentionCheckMs: b.cfg.int("log.retention.check.interval.ms"),
		FlushOffsetCheckpointMs: b.cfg.int("log.flush.offset.checkpoint.interval.ms"), HighWatermarkCheckpointMs: b.cfg.int("replica.high.watermark.checkpoint.interval.ms"),
		RecoveryThreads: b.live("num.recovery.threads.per.data.dir")(),
		Cleaner:         b.cleanerConfig(), CheckBytesPerSec: int64(b.live(checkRateKey)()),
	}, func(topic string) log.Config { return b.logConfig(img, topic) })
	if err != nil {
		return err
	}
	if err := b.checkMetadataAge(img); err != nil {
		return err
	}
	r := replica.New(replica.Options{Node: b.node, Logs: b.logs, Logger: b.logger, ConfigOf: b.logConfig, MinISROf: b.minISR, GateOf: gateOf})
	r.Apply(meta.Diff(meta.Empty(), img))
	r.Strays(img)
	b.logs.ImageApplied()
	b.replicas.Store(r)
	b.logs.SetCleaner(b.cleanerConfig())
	b.logs.SetCheckRate(int64(b.live(checkRateKey)()))
	return nil
}

// checkMetadataAge refuses metadata that are older than a partition (put back from a copy, say, or damaged): its directory would be taken for
// that of a deleted topic. It comes before anything is written to the metadata, which would hide it.
func (b *Broker) checkMetadataAge(img *meta.Image) error {
	var younger []string
	for _, l := range b.logs.Logs() {
		t := img.Topic(l.Topic())
		added := t != nil && t.ID == l.TopicID() && t.Incarnation == l.Incarnation() && int(l.Partition()) >= len(t.Partitions) // they never become fewer
		if added || l.Incarnation() >= img.Offset() {
			younger = append(younger, l.Dir())
		}
	}
	if len(younger) == 0 {
		return nil
	}
	return fmt.Errorf("log.dirs: the metadata in %s end at offset %d and are older than %d of the partitions, such as %s (put back from a copy?); no partition is changed. Put the right ones back, or move the directories of these partitions away to go on without",
		filepath.Join(b.cfg.LogDirs()[0], metadataDir), img.Offset(), len(younger), younger[0])
}

// clusterID is the one in the metadata; a first start makes one.
func (b *Broker) clusterID(ctx context.Context) (string, error) {
	if id := b.quorum.Image().ClusterID(); id != "" {
		return id, nil
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", err
	}
	return b.control.EnsureClusterID(ctx, base64.RawURLEncoding.EncodeToString(raw[:]))
}

// onCommit runs on the quorum's goroutine, before whoever proposed is told.
func (b *Broker) onCommit(d *meta.Delta) {
	r := b.replicas.Load()
	if r == nil {
		return // the image is applied whole once the logs are open
	}
	r.Apply(d)
	if slices.ContainsFunc(d.Configs, func(r meta.Resource) bool { return r.Type == meta.ResourceBroker }) {
		b.logs.SetCleaner(b.cleanerConfig())
		b.logs.SetCheckRate(int64(b.live(checkRateKey)()))
		b.logs.SetProducerIDExpirationMs(int64(b.live("producer.id.expiration.ms")()))
	}
	if b.coords != nil {
		b.coords.apply(d)
	}
	if b.mirrors != nil {
		b.mirrors.apply(d)
	}
}

// register announces this broker. A new incarnation raises the leader epochs of
// what it leads, so that what a crash took from a log is told apart by epoch.
func (b *Broker) register(ctx context.Context) error {
	l := b.listeners[0]
	port, err := strconv.ParseInt(l.advPort, 10, 32)
	if err != nil {
		return err
	}
	mb := meta.Broker{ID: b.node, Incarnation: mirrormsg.RandomUUID(), Host: l.advHost, Port: int32(port)}
	if rack := b.cfg.Static["broker.rack"]; rack != "" {
		mb.Rack = &rack
	}
	return b.control.RegisterBroker(ctx, mb)
}

func (b *Broker) startAPI() {
	a := &api.API{
		Node: b.node, Logger: b.logger, Image: b.quorum.Image, Logs: b.logs, Replicas: b.replicas.Load(), Controller: b.control,
		Groups: b.coords.groups, Mirrors: b.mirrors,
		ProducerIDs:  &api.ProducerIDs{Allocate: b.control.AllocateProducerIDs},
		Advertised:   b.advertised,
		ControllerID: func() int32 { return b.node },
		Levels:       b.levels, EnsureInternal: b.ensureInternal,
		Settings: api.Settings{
			AutoCreateTopics: b.cfg.bool("auto.create.topics.enable"),
			FetchMaxBytes:    int32(b.cfg.int("fetch.max.bytes")),
			FetchSessions:    int(b.cfg.int("max.incremental.fetch.session.cache.slots")),
		},
	}
	b.api = a
	memory := b.cfg.int("queued.max.request.bytes")
	if memory <= 0 {
		memory = defaultRequestMemory
	}
	idle := time.Duration(b.cfg.int("connections.max.idle.ms")) * time.Millisecond
	if idle < 0 {
		idle = 365 * 24 * time.Hour
	}
	b.server = server.New(server.Config{
		MaxRequestBytes: int32(b.cfg.int("socket.request.max.bytes")), MemoryBytes: memory, MaxIdle: idle, MaxStall: maxStall,
		MaxConnections: b.live("max.connections"), MaxPerHost: b.live("max.connections.per.ip"),
		SendBuffer: b.explicit("socket.send.buffer.bytes"), ReceiveBuffer: b.explicit("socket.receive.buffer.bytes"),
	}, dispatcher{a}, b.logger)
}

// live reads a whole-number setting that may change while the broker runs.
func (b *Broker) live(key string) func() int {
	return func() int {
		v, _ := configs.BrokerValue(b.levels(b.quorum.Image()), key)
		n, err := strconv.Atoi(v)
		if err != nil {
			panic("BUG: " + key + " was checked and is not a number: " + v)
		}
		return n
	}
}

// explicit is a setting that counts only when the file has it: Kafka's default
// would keep the system from growing the buffer with the way.
func (b *Broker) explicit(key string) int {
	if _, ok := b.cfg.Static[key]; !ok {
		return 0
	}
	return int(b.cfg.int(key))
}

const (
	defaultRequestMemory = 256 << 20
	maxStall             = time.Minute
)

// advertised is the address of a broker for clients of a listener.
func (b *Broker) advertised(name string, mb *meta.Broker) (string, int32) {
	if mb.ID == b.node {
		for _, l := range b.listeners {
			if l.name == name {
				if port, err := strconv.ParseInt(l.advPort, 10, 32); err == nil {
					return l.advHost, int32(port)
				}
			}
		}
	}
	return mb.Host, mb.Port
}

// dispatcher hands requests of the server to the api.
type dispatcher struct{ a *api.API }

func (d dispatcher) Serve(ctx context.Context, r *server.Request, out *server.Conn) error {
	return d.a.Serve(ctx, api.Request{
		Key: r.Key, Version: r.Version, ClientID: r.ClientID, Host: r.Conn.Host, Listener: r.Conn.Listener,
	}, r.CorrelationID, r.Rest, out)
}

// Addr is HOST:PORT of the first listener as clients are told.
func (b *Broker) Addr() string {
	return net.JoinHostPort(b.listeners[0].advHost, b.listeners[0].advPort)
}

// HTTPAddr is where metrics are served, "" when off.
func (b *Broker) HTTPAddr() string { return b.http.addr() }

// ClusterID is the cluster's id.
func (b *Broker) ClusterID() string { return b.quorum.Image().ClusterID() }

// Node is the broker's id.
func (b *Broker) Node() int32 { return b.node }

// Close stops the broker cleanly: clients first, then mirrors and coordinators,
// then the logs, the metadata last. ctx bounds the wait for requests in flight.
func (b *Broker) Close(ctx context.Context) error {
	var errs []error
	b.closeOnce.Do(func() {
		b.ready.Store(false)
		if b.server != nil {
			b.server.Shutdown(ctx)
		}
		for _, l := range b.listeners { // those that were bound and never served
			l.ln.Close()
		}
		if b.mirrors != nil {
			b.mirrors.close()
		}
		b.cancel()
		if b.coords != nil {
			b.coords.close()
		}
		b.background.Wait()
		if b.control != nil {
			b.control.Close()
		}
		if b.logs != nil {
			if err := b.logs.Close(); err != nil {
				errs = append(errs, err)
			}
		}
		if b.quorum != nil {
			if err := b.quorum.Close(); err != nil {
				errs = append(errs, err)
			}
		}
		b.http.close()
	})
	return errors.Join(errs...)
}

package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"stet/broker/meta"
)

// Options for Open.
type Options struct {
	// Dir holds the quorum's files; it is created when missing.
	Dir    string
	NodeID int32
	// Voters are the node ids of the voters; empty means NodeID alone.
	Voters []int32
	Logger *slog.Logger
	// OnCommit is called after each commit, in order, with the image already
	// published. It must not wait for a Propose. The first call is made by Open
	// and shows everything that was restored as one delta from the empty image.
	OnCommit func(*meta.Delta)
	// SnapshotThreshold is the number of raft entries between snapshots; 0: 4096.
	SnapshotThreshold uint64

	fault func() error // of writes, for tests
}

// Errors of Propose.
var (
	// ErrBase says that the records were made for another image than the current one.
	ErrBase = errors.New("quorum: the metadata has changed meanwhile")
	// ErrNotLeader says that this node does not lead the quorum, or that it was closed.
	ErrNotLeader = errors.New("quorum: not the leader")
	// ErrTooLarge says that a proposal is larger than one raft entry may be.
	ErrTooLarge = errors.New("quorum: proposal too large")
)

// MaxProposalBytes bounds one proposal.
const MaxProposalBytes = 64 << 20

// Quorum is safe for concurrent use.
type Quorum struct {
	raft      *raft.Raft
	dir       string
	store     *watchedStore
	transport *raft.InmemTransport
	fsm       *fsm
	closeOnce sync.Once
	closeErr  error
}

// Election timing with one voter: nobody else can be missed, so these only say how often the lease is looked at. A start
// does not wait for them: elect has the node stand at once.
const (
	singleHeartbeat = time.Second
	leaderPoll      = 20 * time.Millisecond
	openTimeout     = 30 * time.Second
	lockTimeout     = 2 * time.Second
)

// Open restores the metadata, waits until this node leads and everything
// committed is applied, calls OnCommit once, and returns. A directory that
// another process has open, or that belongs to another node, is an error.
func Open(o Options) (*Quorum, error) {
	voters := o.Voters
	if len(voters) == 0 {
		voters = []int32{o.NodeID}
	}
	if len(voters) > 1 || voters[0] != o.NodeID {
		return nil, fmt.Errorf("quorum: voters %v are configured; this version of Stet runs with one voter, the node itself (%d)", voters, o.NodeID)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := makeDir(o.Dir); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	store, err := openStore(o.Dir)
	if err != nil {
		return nil, err
	}
	q := &Quorum{dir: o.Dir, store: &watchedStore{BoltStore: store, dir: o.Dir, log: o.Logger, fault: o.fault}, fsm: newFSM(o.OnCommit)}
	if err := q.start(o); err != nil {
		_ = q.Close()
		return nil, err
	}
	q.fsm.goLive()
	return q, nil
}

// makeDir creates the directory durably.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// storeFile is raft's log, term and vote.
const storeFile = "raft.db"

func isLocked(err error) bool { return errors.Is(err, bbolterrors.ErrTimeout) }

func openStore(dir string) (*raftboltdb.BoltStore, error) {
	path := filepath.Join(dir, storeFile)
	locked := func(err error) error {
		if isLocked(err) {
			return fmt.Errorf("quorum: %s is open in another process", path)
		}
		return fmt.Errorf("quorum: open %w", err)
	}
	snapshots, _ := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err := checkStore(path, len(snapshots) == 0); err != nil {
		return nil, locked(err)
	}
	options := *bbolt.DefaultOptions
	options.Timeout = lockTimeout
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &options})
	if err != nil {
		return nil, locked(fmt.Errorf("%s: %w", path, err))
	}
	if err := syncDir(dir); err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("quorum: %w", err)
	}
	return store, nil
}

// startedKey is written at each start, to see that it can be.
var startedKey = []byte("StetStarted")

func (q *Quorum) start(o Options) error {
	log := hclogTo(o.Logger)
	files, err := raft.NewFileSnapshotStoreWithLogger(o.Dir, 1, log)
	if err != nil {
		return fmt.Errorf("quorum: snapshots: %w", err)
	}
	snapshots := sealedSnapshots{files, o.Dir}
	id := raft.ServerID(strconv.Itoa(int(o.NodeID)))
	address := raft.ServerAddress("node-" + id)
	_, q.transport = raft.NewInmemTransport(address)
	q.transport.Connect(address, q.transport)

	c := raft.DefaultConfig()
	c.LocalID = id
	c.Logger = log
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = singleHeartbeat, singleHeartbeat, singleHeartbeat
	c.CommitTimeout = 5 * time.Millisecond // idle unless there are followers
	c.SnapshotInterval = 30 * time.Second
	c.SnapshotThreshold = 4096
	c.TrailingLogs = 1024
	if o.SnapshotThreshold > 0 {
		c.SnapshotThreshold, c.TrailingLogs = o.SnapshotThreshold, o.SnapshotThreshold/4
	}

	// A disk that is full is found out here.
	if err := noPanic(func() error { return q.store.Set(startedKey, []byte{1}) }); err != nil {
		return fmt.Errorf("quorum: %s cannot be written: %w", o.Dir, err)
	}
	if err := q.takeBackBootstrap(snapshots); err != nil {
		return err
	}
	exists, err := raft.HasExistingState(q.store, q.store, snapshots)
	if err != nil {
		return fmt.Errorf("quorum: read %s: %w", o.Dir, err)
	}
	if !exists {
		first := raft.Configuration{Servers: []raft.Server{{ID: id, Address: address}}}
		if err := raft.BootstrapCluster(c, q.store, q.store, snapshots, q.transport, first); err != nil {
			return fmt.Errorf("quorum: initialise %s: %w", o.Dir, err)
		}
	}
	err = noPanic(func() (err error) { // of an entry that cannot be read
		q.raft, err = raft.NewRaft(c, q.fsm, q.store, q.store, snapshots, q.transport)
		return err
	})
	if err != nil {
		return fmt.Errorf("quorum: open %s: %w", o.Dir, errors.Join(err, q.fsm.failure()))
	}
	return q.catchUp(o, id)
}

// takeBackBootstrap makes a first start that ended in the middle a first start again: it writes the term before the first entry. Entries that are gone
// beside a snapshot are lost: some always stay.
func (q *Quorum) takeBackBootstrap(snapshots raft.SnapshotStore) error {
	last, err := q.store.LastIndex()
	if err != nil {
		return fmt.Errorf("quorum: read %s: %w", q.dir, err)
	}
	if last > 0 {
		return nil
	}
	have, err := snapshots.List()
	if err != nil {
		return fmt.Errorf("quorum: read %s: %w", q.dir, err)
	}
	if len(have) > 0 {
		return fmt.Errorf("quorum: %w", errDamaged(filepath.Join(q.dir, storeFile), errors.New("it has no entries, but there is a snapshot")))
	}
	term, err := q.store.GetUint64(termKey)
	switch {
	case errors.Is(err, raftboltdb.ErrKeyNotFound), err == nil && term == 0:
		return nil
	case err != nil:
		return fmt.Errorf("quorum: read %s: %w", q.dir, err)
	}
	return q.store.BoltStore.SetUint64(termKey, 0)
}

// catchUp waits until this node leads and has applied all that was committed.
func (q *Quorum) catchUp(o Options, id raft.ServerID) error {
	conf := q.raft.GetConfiguration()
	if err := conf.Error(); err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	var members []string
	for _, s := range conf.Configuration().Servers {
		members = append(members, string(s.ID))
	}
	if !slices.Contains(members, string(id)) {
		return fmt.Errorf("quorum: %s belongs to node %s, not to node %s", o.Dir, strings.Join(members, " and "), id)
	}
	q.elect(id)
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if err := q.waitLeader(ctx, true); err != nil {
		return err
	}
	if err := q.raft.Barrier(openTimeout).Error(); err != nil {
		return q.because(fmt.Errorf("quorum: %w", err))
	}
	if err := q.fsm.failure(); err != nil {
		return fmt.Errorf("quorum: %s: %w", o.Dir, err)
	}
	return nil
}

// elect has this node stand for election now, as when a leader hands over. Where that fails it stands after the heartbeat timeout.
func (q *Quorum) elect(id raft.ServerID) {
	_ = q.transport.TimeoutNow(id, q.transport.LocalAddr(), &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, &raft.TimeoutNowResponse{})
}

// Image is the latest committed image.
func (q *Quorum) Image() *meta.Image { return q.fsm.image.Load() }

// IsLeader says whether Propose can succeed here.
func (q *Quorum) IsLeader() bool { return q.raft.State() == raft.Leader }

// WaitLeader returns when this node leads, or with ctx's error.
func (q *Quorum) WaitLeader(ctx context.Context) error { return q.waitLeader(ctx, false) }

// waitLeader is WaitLeader that, with impatient, ends when the store fails.
func (q *Quorum) waitLeader(ctx context.Context, impatient bool) error {
	// LeaderCh has a buffer of one and drops old values: IsLeader decides.
	for !q.IsLeader() {
		if impatient && q.store.failure() != nil {
			return q.because(errors.New("quorum: no leader can be elected"))
		}
		select {
		case <-q.raft.LeaderCh():
		case <-ctx.Done():
			return q.because(fmt.Errorf("quorum: waiting for a leader: %w", ctx.Err()))
		case <-time.After(leaderPoll):
		}
	}
	return nil
}

// because adds why the metadata cannot be written, if they cannot: raft says no more than that this node does not lead.
func (q *Quorum) because(err error) error {
	if cause := q.store.failure(); cause != nil {
		return fmt.Errorf("%w, because %s cannot be written: %w", err, q.dir, cause)
	}
	return err
}

// Propose makes records durable and applies them, if the image's offset is still
// base. It returns after the commit and after OnCommit ran. An error of ctx, and
// one that wraps ErrNotLeader, leave it open whether the records were committed;
// ErrBase and ErrTooLarge mean that they were not.
func (q *Quorum) Propose(ctx context.Context, base int64, recs []meta.Record) error {
	data := encodeProposal(base, recs)
	if len(data) > MaxProposalBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(data), MaxProposalBytes)
	}
	future := q.raft.Apply(data, 0)
	done := make(chan error, 1)
	go func() {
		if err := future.Error(); err != nil {
			done <- q.because(fmt.Errorf("%w: %w", ErrNotLeader, err))
			return
		}
		err, _ := future.Response().(error)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("quorum: %w", ctx.Err())
	}
}

// Snapshot writes a snapshot now; it is otherwise taken when enough has changed.
func (q *Quorum) Snapshot() error {
	err := q.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}

// Close stops raft and closes the files. Proposals in flight fail.
func (q *Quorum) Close() error {
	q.closeOnce.Do(func() {
		if q.raft != nil {
			q.closeErr = q.raft.Shutdown().Error()
		}
		if q.transport != nil {
			q.closeErr = errors.Join(q.closeErr, q.transport.Close())
		}
		q.closeErr = errors.Join(q.closeErr, q.store.Close())
	})
	return q.closeErr
}

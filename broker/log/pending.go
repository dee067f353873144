package log

import (
	"context"
	"log/slog"

	"stet/internal/clock"
	"stet/internal/vfs"
)

// ManagerOptions configures OpenManager.
type ManagerOptions struct {
	FS                     vfs.FS
	Dirs                   []string // log.dirs; the first takes new partitions when it has the fewest
	NodeID                 int32
	ClusterID              string // "": what the directories say, or a new one
	Clock                  clock.Clock
	Logger                 *slog.Logger
	ProducerIDExpirationMs int64 // producer.id.expiration.ms, 0: a day
}

// DirInfo is one log directory (DescribeLogDirs).
type DirInfo struct {
	Dir           string
	Err           error
	Total, Usable int64 // bytes of the volume, -1: unknown
	Partitions    []PartitionSize
}

// PartitionSize is the size of one partition in bytes.
type PartitionSize struct {
	Topic     string
	Partition int32
	Size      int64
}

type Manager struct{}

func OpenManager(o ManagerOptions, configOf func(topic string) Config) (*Manager, error) {
	panic("BUG")
}
func (m *Manager) ClusterID() string { panic("BUG") }
func (m *Manager) Logs() []*Log      { panic("BUG") }
func (m *Manager) Create(topic string, partition int32, id [16]byte, incarnation int64, cfg Config) (*Log, error) {
	panic("BUG")
}
func (m *Manager) Get(topic string, partition int32) *Log     { panic("BUG") }
func (m *Manager) Delete(topic string, partition int32) error { panic("BUG") }
func (m *Manager) Run(ctx context.Context)                    { panic("BUG") }
func (m *Manager) Close() error                               { panic("BUG") }
func (m *Manager) DirSizes() []DirInfo                        { panic("BUG") }

type Log struct{}

func (l *Log) Topic() string                              { panic("BUG") }
func (l *Log) Partition() int32                           { panic("BUG") }
func (l *Log) TopicID() [16]byte                          { panic("BUG") }
func (l *Log) Incarnation() int64                         { panic("BUG") }
func (l *Log) Dir() string                                { panic("BUG") }
func (l *Log) Size() int64                                { panic("BUG") }
func (l *Log) LogStartOffset() int64                      { panic("BUG") }
func (l *Log) LogEndOffset() int64                        { panic("BUG") }
func (l *Log) HighWatermark() int64                       { panic("BUG") }
func (l *Log) LastStableOffset() int64                    { panic("BUG") }
func (l *Log) SetHighWatermark(hw int64) (advanced bool)  { panic("BUG") }
func (l *Log) IncrementLogStartOffset(to int64) error     { panic("BUG") }
func (l *Log) LatestEpoch() (epoch int32, ok bool)        { panic("BUG") }
func (l *Log) EpochStartOffset(epoch int32) (int64, bool) { panic("BUG") }
func (l *Log) EpochEntries() []EpochEntry                 { panic("BUG") }
func (l *Log) EndOffsetForEpoch(requested, currentLeaderEpoch int32) (epoch int32, end int64) {
	panic("BUG")
}
func (l *Log) AppendAsLeader(records []byte, leaderEpoch int32, origin Origin) (AppendResult, error) {
	panic("BUG")
}
func (l *Log) AppendAsFollower(batches []byte) (AppendResult, error) { panic("BUG") }
func (l *Log) Read(offset int64, maxBytes int, bound int64, minOneBatch bool) (Slice, error) {
	panic("BUG")
}
func (l *Log) AbortedTxns(from, upTo int64) []AbortedTxn { panic("BUG") }
func (l *Log) OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, err error) {
	panic("BUG")
}
func (l *Log) MaxTimestamp() (offset, timestamp int64, epoch int32, err error) { panic("BUG") }
func (l *Log) OpenTransactions() []OpenTxn                                     { panic("BUG") }
func (l *Log) ActiveProducers() []ProducerState                                { panic("BUG") }
func (l *Log) Truncate(to int64) error                                         { panic("BUG") }
func (l *Log) TruncateFullyAndStartAt(offset int64) error                      { panic("BUG") }
func (l *Log) Flush() error                                                    { panic("BUG") }
func (l *Log) SetConfig(c Config)                                              { panic("BUG") }
func (l *Log) Config() Config                                                  { panic("BUG") }
func (l *Log) SetRetentionEnabled(on bool)                                     { panic("BUG") }
func (l *Log) Err() error                                                      { panic("BUG") }

// Slice is a range of one segment file. The holder must call Release once.
type Slice struct{}

func (s *Slice) Len() int                                { panic("BUG") }
func (s *Slice) File() vfs.File                          { panic("BUG") }
func (s *Slice) Pos() int64                              { panic("BUG") }
func (s *Slice) ReadAt(p []byte, off int64) (int, error) { panic("BUG") }
func (s *Slice) Release()                                { panic("BUG") }

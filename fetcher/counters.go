package fetcher

import "sync/atomic"

// Counters count exactly what the hot path does (PERFORMANCE G10). The root registers them with the metrics.
type Counters struct {
	Requests  atomic.Int64
	Responses atomic.Int64
	// ResponseBytes are the bytes of all response bodies; they were copied once, from the socket into a lease.
	ResponseBytes atomic.Int64
	// AppendedBytes, AppendedBatches and Appends count what the sinks took; each byte was copied once more, into the log.
	AppendedBytes   atomic.Int64
	AppendedBatches atomic.Int64
	Appends         atomic.Int64
	// CheckedBytes are the bytes of batches whose CRC was computed, each once.
	CheckedBytes atomic.Int64
	// IgnoredBytes came for partitions that were removed, halted or moved meanwhile.
	IgnoredBytes atomic.Int64
	// CutBytes belong to incomplete batches at the end of a partition's records.
	CutBytes atomic.Int64
	// ThrottleMillis is the time for which sources asked us to wait.
	ThrottleMillis atomic.Int64
	// Connects and ConnectErrors count connection attempts by result, BrokenConnections those that ended with an error later.
	Connects          atomic.Int64
	ConnectErrors     atomic.Int64
	BrokenConnections atomic.Int64
	// SetAside counts partitions whose log was so slow that the others went on without them.
	SetAside atomic.Int64
}

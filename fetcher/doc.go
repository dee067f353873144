// Package fetcher copies partitions from the brokers of a source cluster into
// local logs, byte for byte (SPEC section 5). It knows neither how a source is
// reached (interface Leader) nor where the bytes go (interface Sink), and it never
// changes a state: what needs a decision becomes an Event.
//
// Goroutines: one loop per (mirror, source broker, fetcher number), several of
// them, the lanes, on a long way (place.go), and one per partition whose log hangs (aside.go). A loop is started with
// its first partition and ended when it has had none for a while. Each loop has
// its own connection and exactly one outstanding request.
//
// Locks: Manager.mu guards the table of loops, loop.mu the partitions of a loop,
// partition.mu is held while bytes are appended to that partition. Order:
// Manager.mu, loop.mu, partition.mu; an event is delivered with none of them held.
//
// A response passes through a loop in two steps. plan walks it, checks every batch's
// header and so knows the next offsets; the next request leaves with them. Then
// append checks each CRC and hands the batches to the sink, one leased buffer
// after the other. What step two refuses makes the prediction of step one wrong for
// that partition; the answer to it is then ignored.
package fetcher

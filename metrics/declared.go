package metrics

import (
	"slices"
	"strings"
)

// Kind is how a value behaves over time.
type Kind int8

// The kinds.
const (
	Gauge Kind = iota
	Counter
	Histogram
)

// Desc declares a metric. Seconds, bytes and totals are as Prometheus has them.
type Desc struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string

	order []int // of the labels by name, as they are written
}

var (
	partition = []string{"mirror", "topic", "partition"}
	mirror    = []string{"mirror"}
)

// Mirror metrics per partition (SPEC section 13). -1 where a value is unknown.
var (
	MirrorLagRecords   = declare("stet_mirror_lag_records", Gauge, partition, "Records that the source's high watermark, when last seen, was ahead of the local log end; -1: unknown.")
	MirrorLagSeconds   = declare("stet_mirror_lag_seconds", Gauge, partition, "Age of the oldest sight of a source high watermark that is still above the local log end; 0 when caught up, -1: unknown.")
	MirrorLagAge       = declare("stet_mirror_lag_age_seconds", Gauge, partition, "Seconds since a response of the source last covered the partition; -1: never.")
	MirrorInBytes      = declare("stet_mirror_in_bytes_total", Counter, partition, "Bytes of record batches appended from the source.")
	MirrorInBatches    = declare("stet_mirror_in_batches_total", Counter, partition, "Record batches appended from the source.")
	MirrorRetries      = declare("stet_mirror_retries_total", Counter, partition, "Times that a failed partition was tried again.")
	MirrorGapRecords   = declare("stet_mirror_gap_records_total", Counter, partition, "Offsets that the source's retention removed before they were copied.")
	MirrorCutRecords   = declare("stet_mirror_cut_records_total", Counter, partition, "Offsets cut from the local log to follow the source.")
	MirrorEpochBumps   = declare("stet_mirror_epoch_bumps_total", Counter, partition, "Leader epochs raised for the mirror.")
	MirrorThrottledNow = declare("stet_mirror_partition_throttled", Gauge, partition, "1 while the mirror throttle holds the partition back.")
)

// Mirror metrics per mirror (SPEC section 13).
var (
	MirrorTopics        = declare("stet_mirror_topics", Gauge, mirror, "Topics that belong to the mirror, stopped ones included.")
	MirrorPartitions    = declare("stet_mirror_partitions", Gauge, []string{"mirror", "state"}, "Partitions led here by state.")
	MirrorFetchers      = declare("stet_mirror_fetchers", Gauge, []string{"mirror", "alive"}, "Fetchers by whether their connection works.")
	MirrorFetchRequests = declare("stet_mirror_fetch_requests_total", Counter, mirror, "Fetch requests sent to the source.")
	MirrorFetchDuration = declare("stet_mirror_fetch_duration_seconds", Histogram, mirror, "Time from sending a fetch to its last byte, the source's wait included.")
	MirrorThrottle      = declare("stet_mirror_throttle_seconds_total", Counter, []string{"mirror", "side"}, "Seconds held back by a throttle: own or the source's quota.")
	MirrorSyncErrors    = declare("stet_mirror_sync_errors_total", Counter, []string{"mirror", "step"}, "Failed steps of the periodic refresh.")
	MirrorStopDuration  = declare("stet_mirror_stop_duration_seconds", Histogram, mirror, "Time from a stop to STOPPED, per partition.")
)

// Broker metrics; meanings are Kafka's.
var (
	BrokerInfo            = declare("stet_broker_info", Gauge, []string{"version", "node", "cluster"}, "Constant 1 with what is running.")
	BrokerConnections     = declare("stet_broker_connections", Gauge, nil, "Open client connections.")
	BrokerAccepted        = declare("stet_broker_connections_accepted_total", Counter, nil, "Client connections accepted.")
	BrokerRefused         = declare("stet_broker_connections_refused_total", Counter, nil, "Client connections refused at max.connections.")
	BrokerRequests        = declare("stet_broker_requests_total", Counter, nil, "Requests begun.")
	BrokerRequestMemory   = declare("stet_broker_request_memory_bytes", Gauge, nil, "Memory admitted for requests being read or served.")
	BrokerProduceBytes    = declare("stet_broker_produce_bytes_total", Counter, nil, "Bytes of record batches appended for producers.")
	BrokerProduceBatches  = declare("stet_broker_produce_batches_total", Counter, nil, "Record batches appended for producers.")
	BrokerProduceRequests = declare("stet_broker_produce_requests_total", Counter, nil, "Produce requests.")
	BrokerFetchRequests   = declare("stet_broker_fetch_requests_total", Counter, nil, "Fetch requests of consumers.")
	BrokerSendfileBytes   = declare("stet_broker_out_sendfile_bytes_total", Counter, nil, "Response bytes that went from file to socket inside the kernel.")
	BrokerCopiedBytes     = declare("stet_broker_out_copied_bytes_total", Counter, nil, "Response bytes that were read from files into memory before they were sent.")
	BrokerMemoryOutBytes  = declare("stet_broker_out_memory_bytes_total", Counter, nil, "Response bytes that were in memory already.")
	BrokerPartitions      = declare("stet_broker_partitions", Gauge, nil, "Partitions held by this broker.")
	BrokerOffline         = declare("stet_broker_offline_partitions", Gauge, nil, "Partitions whose log cannot be used.")
	BrokerLogBytes        = declare("stet_broker_log_bytes", Gauge, nil, "Bytes of all logs of this broker.")
	BrokerCorruptBatches  = declare("stet_broker_log_corrupt_batches_total", Counter, nil, "Corrupt batches, or runs of them, that were found in logs since the start; they are not served.")
	BrokerMetadataOffset  = declare("stet_broker_metadata_offset", Gauge, nil, "Metadata records applied.")
)

// Declared lists all of them; a test holds what a broker exposes against it.
var Declared = []*Desc{
	MirrorLagRecords, MirrorLagSeconds, MirrorLagAge, MirrorInBytes, MirrorInBatches, MirrorRetries, MirrorGapRecords, MirrorCutRecords,
	MirrorEpochBumps, MirrorThrottledNow, MirrorTopics, MirrorPartitions, MirrorFetchers, MirrorFetchRequests, MirrorFetchDuration,
	MirrorThrottle, MirrorSyncErrors, MirrorStopDuration,
	BrokerInfo, BrokerConnections, BrokerAccepted, BrokerRefused, BrokerRequests, BrokerRequestMemory, BrokerProduceBytes,
	BrokerProduceBatches, BrokerProduceRequests, BrokerFetchRequests, BrokerSendfileBytes, BrokerCopiedBytes, BrokerMemoryOutBytes,
	BrokerPartitions, BrokerOffline, BrokerLogBytes, BrokerCorruptBatches, BrokerMetadataOffset,
}

func declare(name string, kind Kind, labels []string, help string) *Desc {
	d := &Desc{Name: name, Kind: kind, Labels: labels, Help: help, order: make([]int, len(labels))}
	for i := range d.order {
		d.order[i] = i
	}
	slices.SortFunc(d.order, func(a, b int) int { return strings.Compare(labels[a], labels[b]) })
	return d
}

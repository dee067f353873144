// Package metrics declares every metric of Stet in one place (declared.go: name,
// kind, labels, unit and meaning) and exposes them in Prometheus' text format
// (exposition.go); histograms, runtime and process are the client library's.
// Values come from sources that are asked at each scrape, from gauges and from
// histograms; counters of other packages are plain values that a source reads.
// SPEC section 13 fixes the names of the mirror metrics.
//
// It owns no goroutines. The registry's lock is held while the list of sources is
// read, not while they run.
package metrics

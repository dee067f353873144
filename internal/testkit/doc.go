// Package testkit is what tests of several packages share: real Apache Kafka and
// broker processes (kafka.go, process.go) and brokers in the process; the scripted source
// cluster is in its sub-package. Only external _test packages may import it.
package testkit

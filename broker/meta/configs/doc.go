// Package configs holds the tables of configuration keys (topic, broker, mirror,
// group): types, defaults, what is allowed, which broker keys can be changed
// while the broker runs, and how the configs of a topic follow from its own, the
// broker's and the defaults (KIP-226). Names, types and defaults are Apache
// Kafka's where Kafka has the key; the keys of SPEC section 11 are ours.
//
// Everything is pure and read-only after initialisation; the package owns no
// goroutines and no locks.
package configs

// Package controller decides what changes in the cluster's metadata. Each request
// is a pure function (image, request, environment) -> (records, answer) in a file
// of its own; the Controller runs them one after the other on a speculative image
// and commits what they return in groups: two requests never see the same image,
// and an answer goes out only after everything it saw is durable.
//
// It owns one goroutine, which ends with Close. There are no locks: the goroutine
// owns all state but the channel.
package controller

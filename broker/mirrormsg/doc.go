// Package mirrormsg holds the mirror requests and responses of Stet (SPEC
// section 9) in the style of franz-go's kmsg, with their API keys, error codes,
// placement rules and the record formats of __mirror_state (SPEC section 10).
//
// It imports nothing of Stet, so that any Go program can send these requests
// with franz-go: give kgo.MaxVersions(mirrormsg.MaxVersions()) to the client and
// use the request types as any other kmsg.Request.
//
// generated_*.go are made by generate.sh from definitions/ with franz-go's own
// generator. The package owns no goroutines and no locks.
package mirrormsg

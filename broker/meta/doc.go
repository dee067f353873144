// Package meta holds the cluster's metadata: the records of the metadata log,
// the immutable image that they add up to, the delta between two images, and the
// snapshot form of an image (image -> records -> image is the identity).
//
// Everything here is pure: an Image never changes after Apply returned it and
// may be read by any number of goroutines. The package owns no goroutines; the
// only lock is the one that makes an image's sorted topic list once.
package meta

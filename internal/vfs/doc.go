// Package vfs is the seam between Stet and the file system: the operating
// system in production, a crash-clone memory file system and an
// error-injecting one in tests. All file access of broker/log goes through it.
// It owns no goroutines; implementations are safe for concurrent use.
package vfs

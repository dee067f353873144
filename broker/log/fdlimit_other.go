//go:build !unix

package log

func openFilesLimit() int { return 512 }

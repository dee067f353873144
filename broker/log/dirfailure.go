package log

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"
)

// dirErrors are those that are about a disk, not about a file: it fails, is read-only, full or gone.
var dirErrors = []error{
	syscall.EIO, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.ENODEV, syscall.ENXIO, syscall.ESTALE,
}

// err is why the directory is offline, wrapping ErrStorage, or nil.
func (d *dataDir) err() error {
	if d == nil {
		return nil
	}
	if p := d.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// check takes the directory offline, with all its partitions, if the error says that its disk
// failed. They return with a restart, once the disk is well.
func (d *dataDir) check(logger *slog.Logger, err error) bool {
	if d == nil || err == nil {
		return false
	}
	failed := false
	for _, e := range dirErrors {
		failed = failed || errors.Is(err, e)
	}
	if !failed && isNotExist(err) {
		_, serr := d.fs.Stat(d.path)
		failed = serr != nil
	}
	if !failed {
		return false
	}
	d.takeOffline(logger, err)
	return true
}

func (d *dataDir) takeOffline(logger *slog.Logger, err error) {
	e := fmt.Errorf("%w: log directory %s: %w", ErrStorage, d.path, err)
	if d.failure.CompareAndSwap(nil, &e) {
		logger.Error("log directory is offline", "file", d.path, "err", err)
	}
}

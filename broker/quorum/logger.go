package quorum

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// hclogTo makes the logger that raft wants. Its warnings (elections, mostly) are
// ordinary with one voter and go out at debug level.
func hclogTo(l *slog.Logger) hclog.Logger {
	level := hclog.Error
	if l.Enabled(context.Background(), slog.LevelDebug) {
		level = hclog.Info
	}
	return hclog.New(&hclog.LoggerOptions{Name: "raft", Level: level, Output: &lineWriter{l: l}, DisableTime: true})
}

// lineWriter logs lines. An error that is the same as the last one, as of one failed election after the other, is not said again.
type lineWriter struct {
	l    *slog.Logger
	last []byte // hclog writes one line at a time
}

func (w *lineWriter) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.HasPrefix(line, []byte("[ERROR]")) {
		if bytes.Equal(line, w.last) {
			return len(line), nil
		}
		w.last = append(w.last[:0], line...)
		level = slog.LevelError
	}
	w.l.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

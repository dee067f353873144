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
	return hclog.New(&hclog.LoggerOptions{Name: "raft", Level: level, Output: lineWriter{l}, DisableTime: true})
}

type lineWriter struct{ l *slog.Logger }

func (w lineWriter) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.HasPrefix(line, []byte("[ERROR]")) {
		level = slog.LevelError
	}
	w.l.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

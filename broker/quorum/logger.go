package quorum

import (
	"bytes"
	"context"
	"log/slog"
	"time"

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

// sameErrorEvery is how often an error is said that comes again and again, as of one failed election after the other.
const sameErrorEvery = time.Minute

type lineWriter struct {
	l    *slog.Logger
	last []byte // the last error; hclog writes one line at a time
	said time.Time
}

func (w *lineWriter) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.HasPrefix(line, []byte("[ERROR]")) {
		if bytes.Equal(line, w.last) && time.Since(w.said) < sameErrorEvery {
			return len(line), nil
		}
		w.last, w.said = append(w.last[:0], line...), time.Now()
		level = slog.LevelError
	}
	w.l.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

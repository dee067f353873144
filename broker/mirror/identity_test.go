package mirror_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"stet/broker/meta"
	"stet/broker/mirrormsg"
	"stet/internal/testkit/scripted"
)

func TestAnotherCluster(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	w.createMirror()
	w.startTopics("t")
	w.untilState("t", 0, "MIRRORING")
	w.eventually("the id is kept", func() error {
		if w.image().Config(meta.ResourceMirror, "m")["source.cluster.id"] != w.source.ID {
			return errors.New("not yet")
		}
		return nil
	})
	w.source.Change(func() { w.source.ID = "another" })
	s := w.untilState("t", 0, "FAILED")
	if s.RetryAttempt != -1 || !strings.Contains(s.Error, "another") {
		t.Errorf("%+v", s)
	}
	_ = tp
}

// TestCorrectedSource: a mirror that was turned to another cluster goes on by itself once its configuration is right again,
// also across a restart in the wrong one.
func TestCorrectedSource(t *testing.T) {
	w := newWorld(t, 1)
	tp := w.source.CreateTopic("t", 1)
	gone := w.source.CreateTopic("gone", 1)
	w.createMirror()
	w.startTopics("t", "gone")
	w.source.Produce(tp, 0, 3, 10)
	w.source.Produce(gone, 0, 3, 10)
	w.untilEqual(tp, 0)
	w.untilEqual(gone, 0)
	w.source.Change(func() { gone.ID = mirrormsg.RandomUUID() })
	other := w.untilState("gone", 0, "FAILED")
	right, wrong := w.source.Bootstrap(), scripted.NewCluster(t, 1)
	wrong.Change(func() { wrong.ID = "another" })
	for _, restart := range []bool{false, true} {
		w.alter("bootstrap.servers", wrong.Bootstrap())
		s := w.untilState("t", 0, "FAILED")
		if s.RetryAttempt != -1 || !strings.Contains(s.Error, "another") || !strings.Contains(s.Error, wrong.Bootstrap()) {
			t.Errorf("%+v", s)
		}
		if restart {
			w.restart()
			w.untilState("t", 0, "FAILED")
			w.eventually("the new manager has seen the wrong cluster", func() error {
				if m := w.m.Mirrors(); len(m) != 1 || m[0].Problem == nil || !strings.Contains(m[0].Problem.Error(), "another") {
					return fmt.Errorf("%+v", m)
				}
				return nil
			})
		}
		w.alter("fetch.max.bytes", "2000000") // does not help
		w.source.Produce(tp, 0, 3, 10)
		w.alter("bootstrap.servers", right)
		w.untilEqual(tp, 0)
		w.eventually("the attempts are forgotten", func() error {
			if s := w.untilState("t", 0, "MIRRORING"); s.RetryAttempt != 0 || s.Error != "" {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if s := w.untilState("gone", 0, "FAILED"); s.Error != other.Error || s.RetryAttempt != -1 {
			t.Errorf("%+v", s)
		}
	}
	// The mirror of another cluster, on purpose: its bytes do not follow those of this one without a new start.
	w.alter("bootstrap.servers", wrong.Bootstrap())
	w.untilState("t", 0, "FAILED")
	w.alter("source.cluster.id", "another")
	w.eventually("the source is right now", func() error {
		if m := w.m.Mirrors(); m[0].Problem != nil {
			return m[0].Problem
		}
		return nil
	})
	w.untilState("t", 0, "FAILED")
}

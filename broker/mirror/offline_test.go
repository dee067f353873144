package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/mirrormsg"
)

// shown is a partition as DescribeMirrors shows it, and the message of the whole answer.
func (w *world) shown(topic string) (p mirrormsg.DescribeMirrorsResponseMirrorTopicPartition, message string) {
	resp := w.m.DescribeMirrors(context.Background(), mirrormsg.NewPtrDescribeMirrorsRequest())
	for i := range resp.Mirrors {
		for _, t := range resp.Mirrors[i].Topics {
			if t.TopicName == topic && len(t.Partitions) > 0 {
				p = t.Partitions[0]
			}
		}
	}
	return p, str(resp.ErrorMessage)
}

// TestOfflineLogIsShown: a disk that is full leaves a state MIRRORING behind that cannot be changed any more; what is shown is
// that the partition has failed, and why. So is a partition that could not be opened and has no driver.
func TestOfflineLogIsShown(t *testing.T) {
	w := newWorld(t, 1)
	for _, n := range []string{"t", "stopped", "missing"} {
		w.source.CreateTopic(n, 1)
	}
	w.createMirror()
	w.startTopics("t", "stopped")
	w.untilState("t", 0, "MIRRORING")
	w.untilState("stopped", 0, "MIRRORING")
	w.stopTopics("stopped")
	full := errors.New("no space left on device")
	w.mu.Lock()
	w.offline = map[string]error{"t-0": full, "stopped-0": full, "missing-0": full, "__mirror_state-1": full}
	w.hidden = "missing"
	w.mu.Unlock()
	w.startTopics("missing")
	for topic, want := range map[string]string{"t": "FAILED", "missing": "FAILED", "stopped": "STOPPED"} {
		p, message := w.shown(topic)
		if p.State != want || p.ErrorCode != kerr.KafkaStorageError.Code || !strings.Contains(str(p.ErrorMessage), full.Error()) {
			t.Errorf("%s: %s %s %q", topic, p.State, mirrormsg.CodeName(p.ErrorCode), str(p.ErrorMessage))
		}
		if !strings.Contains(message, "1 of 3 partitions of __mirror_state are offline") {
			t.Errorf("the message is %q", message)
		}
	}
	if s, _ := w.status("t", 0); s.State.String() != "FAILED" {
		t.Errorf("the metrics say %v", s.State)
	}
	w.mu.Lock()
	w.offline = nil
	w.mu.Unlock()
	if p, message := w.shown("t"); p.State != "MIRRORING" || p.ErrorMessage != nil || message != "" {
		t.Errorf("%+v %q", p, message)
	}
}

// TestUnstoredStateIsShown: a driver that cannot read or store its state says so, and a failure is shown before it is stored.
func TestUnstoredStateIsShown(t *testing.T) {
	w := newWorld(t, 1)
	w.source.CreateTopic("t", 1)
	w.createMirror()
	setDown := func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.down = err
	}
	gone := errors.New("the coordinator's disk is full")
	until := func(state, text string) {
		t.Helper()
		w.eventually(state+" with "+text, func() error {
			p, _ := w.shown("t")
			if p.State != state || !strings.Contains(str(p.ErrorMessage), text) || (text == "") != (p.ErrorCode == 0) {
				return fmt.Errorf("%s %d %q", p.State, p.ErrorCode, str(p.ErrorMessage))
			}
			return nil
		})
	}
	setDown(gone)
	w.startTopics("t")
	until("UNKNOWN", "cannot be read from __mirror_state: "+gone.Error())
	setDown(nil)
	until("MIRRORING", "")
	setDown(gone)
	w.source.Change(func() { w.source.ID = "another" })
	until("FAILED", "another")
	until("FAILED", gone.Error())
	setDown(nil)
	w.eventually("the failure is stored", func() error {
		if s, _ := w.stored("t", 0); str(s.ErrorMessage) == "" || strings.Contains(str(s.ErrorMessage), gone.Error()) {
			return fmt.Errorf("%q", str(s.ErrorMessage))
		}
		return nil
	})
}

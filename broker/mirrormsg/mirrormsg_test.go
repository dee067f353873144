package mirrormsg

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestErrors(t *testing.T) {
	for i, e := range byCode {
		if e.Code != int16(1279+i) || !errors.Is(ErrorForCode(e.Code), e) || CodeName(e.Code) != e.Message {
			t.Errorf("error %d is %+v", 1279+i, e)
		}
	}
	if ErrorForCode(0) != nil || CodeName(0) != "NONE" || !errors.Is(ErrorForCode(124), kerr.FencedStateEpoch) {
		t.Error("code 0 or FENCED_STATE_EPOCH is wrong")
	}
	for _, c := range []struct {
		err  error
		code int16
	}{
		{nil, 0},
		{UnknownMirror, 1281},
		{fmt.Errorf("x: %w", Errorf(MirrorNotEmpty, "still %d", 3)), 1287},
		{errors.Join(errors.New("a"), kerr.InvalidConfig), kerr.InvalidConfig.Code},
		{errors.New("a"), -1},
	} {
		if got := CodeForError(c.err); got != c.code {
			t.Errorf("%v: code %d, want %d", c.err, got, c.code)
		}
	}
	if code, msg := CodeAndMessage(Errorf(kerr.PolicyViolation, "no %s", "way")); code != 44 || *msg != "no way" {
		t.Errorf("got %d %q", code, *msg)
	}
}

func TestUUIDText(t *testing.T) {
	id := [16]byte{0x92, 0x17, 0x40, 0x55, 0xbb, 0xa1, 0x45, 0x89, 0xb8, 0x9a, 0xec, 0xe2, 0x91, 0x8a, 0x4a, 0x53}
	if got := UUIDString(id); got != "khdAVbuhRYm4muzikYpKUw" {
		t.Errorf("text %q", got)
	}
	for range 1000 {
		id := RandomUUID()
		s := UUIDString(id)
		back, err := ParseUUID(s)
		if err != nil || back != id || len(s) != 22 || s[0] == '-' {
			t.Fatalf("%v: %q, %v, %v", id, s, back, err)
		}
	}
	for _, s := range []string{"", "khdAVbuhRYm4muzikYpKU", "khdAVbuhRYm4muzikYpKU!", "khdAVbuhRYm4muzikYpKUwww"} {
		if _, err := ParseUUID(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

// The hashes are Java's, computed with jshell.
func TestPlacement(t *testing.T) {
	for s, want := range map[string]int32{
		"":                   0,
		"my-mirror":          1191661312,
		"mirror-A":           -1236173389,
		"polygenelubricants": -1 << 31,
		"ü😀":                 2015071,
	} {
		if got := JavaHash(s); got != want {
			t.Errorf("hash of %q is %d, want %d", s, got, want)
		}
	}
	if got := PartitionFor("polygenelubricants", 50); got != 0 {
		t.Errorf("the smallest hash is placed on %d", got)
	}
	if got := PartitionFor("mirror-A", 50); got != 1236173389%50 {
		t.Errorf("a negative hash is placed on %d", got)
	}
	if got := StateKey("m", [16]byte{}, 12); got != "m:AAAAAAAAAAAAAAAAAAAAAA:12" {
		t.Errorf("state key %q", got)
	}
	mirror, id, p, isState, err := ParseCoordinatorKey("m.x:khdAVbuhRYm4muzikYpKUw:12")
	if mirror != "m.x" || UUIDString(id) != "khdAVbuhRYm4muzikYpKUw" || p != 12 || !isState || err != nil {
		t.Errorf("parsed %q %v %d %v %v", mirror, id, p, isState, err)
	}
	for _, bad := range []string{"", "m:x", "m:khdAVbuhRYm4muzikYpKUw:-1", "m:khdAVbuhRYm4muzikYpKUw:01", "m:short:1", "a b", "m:khdAVbuhRYm4muzikYpKUw:1:2"} {
		if _, _, _, _, err := ParseCoordinatorKey(bad); err == nil {
			t.Errorf("key %q was accepted", bad)
		}
	}
}

func TestMirrorNames(t *testing.T) {
	for _, good := range []string{"a", "A.b_c-9", strings.Repeat("x", 249), "stopped", "...", "m.stopped.x"} {
		if err := CheckMirrorName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", strings.Repeat("x", 250), "a b", "ä", "m.stopped", "m.stopping", "m.paused", "a:b", "a/b"} {
		if err := CheckMirrorName(bad); !errors.Is(err, InvalidMirrorName) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestTaggedUUIDs(t *testing.T) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = "t"
	if _, ok, err := MirrorInfo(&topic); ok || err != nil {
		t.Fatalf("without the field: %v %v", ok, err)
	}
	id := RandomUUID()
	SetMirrorInfo(&topic, id)
	req.Topics = append(req.Topics, topic)
	var back kmsg.CreateTopicsRequest
	back.Version = 7
	if err := back.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := MirrorInfo(&back.Topics[0]); got != id || !ok || err != nil {
		t.Errorf("got %v %v %v", got, ok, err)
	}
	back.Topics[0].UnknownTags.Set(Tag1279, []byte("short"))
	if _, ok, err := MirrorInfo(&back.Topics[0]); ok || err == nil {
		t.Error("a malformed field was accepted")
	}
}

func TestStateRecords(t *testing.T) {
	for _, k := range []StateRecordKey{
		{Type: StateRecordLastMirror, MirrorID: RandomUUID(), TopicID: RandomUUID(), Partition: 3, SourceClusterID: "c"},
		{Type: StateRecordState, MirrorID: RandomUUID(), TopicID: RandomUUID(), Partition: 1 << 30},
	} {
		b := k.AppendTo(nil)
		var back StateRecordKey
		if err := back.ReadFrom(b); err != nil || back != k {
			t.Errorf("got %+v, %v, want %+v", back, err, k)
		}
		for i := range b {
			if err := back.ReadFrom(b[:i]); err == nil {
				t.Errorf("%d bytes of %d were accepted", i, len(b))
			}
		}
		if err := back.ReadFrom(append(b, 0)); err == nil {
			t.Error("a byte too many was accepted")
		}
	}
	s := NewPartitionState()
	s.MirrorName = "m"
	v, err := DecodeStateValue(StateRecordState, s.AppendTo(nil))
	if err != nil || !reflect.DeepEqual(v, &s) {
		t.Errorf("got %+v, %v", v, err)
	}
	if _, err := DecodeStateValue(StateRecordState, []byte{0, 1, 0}); err == nil {
		t.Error("version 1 was accepted")
	}
	if _, err := DecodeStateValue(9, []byte{0, 0, 0}); err == nil {
		t.Error("type 9 was accepted")
	}
}

package loadgen

import (
	"strings"
	"testing"
)

// TestThrottleCommands: what could not be put back is told as commands that do it, brokers and topics each with their own value.
func TestThrottleCommands(t *testing.T) {
	rate, other, some := "5000", "7000", "0:1,1:2"
	s := &throttleSettings{brokers: map[int32]*string{2: nil, 1: &rate, 3: &other}, topics: map[string]*string{"b": &some, "a": nil}}
	const alter = "stet configs --bootstrap-server h:1 --alter --entity-type "
	want := []string{
		alter + "brokers --entity-name 1 --add-config 'mirror.replication.throttled.rate=[5000]'",
		alter + "brokers --entity-name 2 --delete-config mirror.replication.throttled.rate",
		alter + "brokers --entity-name 3 --add-config 'mirror.replication.throttled.rate=[7000]'",
		alter + "topics --entity-name a --delete-config mirror.replication.throttled.replicas",
		alter + "topics --entity-name b --add-config 'mirror.replication.throttled.replicas=[0:1,1:2]'",
	}
	if got := s.commands("h:1"); got != strings.Join(want, "\n  ") {
		t.Errorf("%s", got)
	}
	same := "5000"
	groups := group(map[int32]*string{1: &rate, 2: nil, 3: &same, 4: nil})
	if len(groups) != 2 || len(groups[0].names) != 2 || *groups[0].value != "5000" || groups[0].names[1] != 3 || groups[1].value != nil || groups[1].names[1] != 4 {
		t.Errorf("%d groups: %+v %+v", len(groups), groups[0], groups[1])
	}
}

package quota

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestReplicasAgainstAModel: any list of replicas in any spacing contains exactly its members.
func TestReplicasAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type pair struct{ p, b int32 }
		want := map[pair]bool{}
		var parts []string
		for range rapid.IntRange(0, 12).Draw(t, "entries") {
			e := pair{rapid.Int32Range(0, 6).Draw(t, "partition"), rapid.Int32Range(0, 6).Draw(t, "broker")}
			want[e] = true
			parts = append(parts, fmt.Sprintf("%d:%d", e.p, e.b))
			if rapid.Bool().Draw(t, "empty element") {
				parts = append(parts, "")
			}
		}
		sep := rapid.SampledFrom([]string{",", ", ", " ,\t"}).Draw(t, "separator")
		r, err := ParseReplicas(strings.Join(parts, sep))
		if err != nil {
			t.Fatal(err)
		}
		for p := range int32(7) {
			for b := range int32(7) {
				if r.Contains(p, b) != want[pair{p, b}] {
					t.Fatalf("%d:%d in %v", p, b, parts)
				}
			}
		}
	})
	all, err := ParseReplicas(" * ")
	if err != nil || !all.Contains(7, 1<<30) {
		t.Errorf("* has not everything: %v", err)
	}
}

// FuzzParseReplicas holds the parser against the expression that Apache Kafka uses.
func FuzzParseReplicas(f *testing.F) {
	for _, s := range []string{"", "*", "0:1,1:2", "none", "0-1", "0:1:1", "0:1,*", "+1:2", "99999999999:1", ",", "1: 2"} {
		f.Add(s)
	}
	element := regexp.MustCompile(`^([0-9]+:[0-9]+)?$`)
	f.Fuzz(func(t *testing.T, s string) {
		ok := strings.TrimSpace(s) == "*"
		if !ok {
			ok = true
			for e := range strings.SplitSeq(s, ",") {
				ok = ok && element.MatchString(strings.TrimSpace(e))
			}
		}
		_, err := ParseReplicas(s)
		switch {
		case err == nil && !ok:
			t.Fatalf("%q is accepted", s)
		case err != nil && !errors.Is(err, ErrReplicas):
			t.Fatalf("%q: %v", s, err)
		case err != nil && ok && !regexp.MustCompile(`[0-9]{10}`).MatchString(s): // only a number that is too large
			t.Fatalf("%q: %v", s, err)
		}
	})
}

package main

import (
	"strings"
	"testing"
)

// TestRatioIsOfRounds: what slows subject and baseline of a round alike does not move the ratio.
func TestRatioIsOfRounds(t *testing.T) {
	var p pairs
	p.add(3, 2)
	p.add(30, 20)
	p.add(9, 1)
	if got := p.ratio(); got != 1.5 {
		t.Errorf("ratio %v", got)
	}
	r := p.against("s", "w", "u", "raw").most("G1", 1.5)
	if !r.ok || r.value != 9 || r.base != 2 {
		t.Errorf("%+v", r)
	}
	if r := p.against("s", "w", "u", "raw").least("G2", 1.6); r.ok || !strings.HasSuffix(r.cells()[5], "NO") {
		t.Errorf("a missed goal is not told: %v", r.cells())
	}
	var none pairs
	if r := none.against("s", "w", "u", "raw").most("G1", 1.5); r.ok {
		t.Error("no rounds meet a goal")
	}
}

func TestResultsSections(t *testing.T) {
	one := replaceSection("", "make bench", "## make bench\n\nfirst\n")
	two := replaceSection(one, "make bench-peers", "## make bench-peers\n\npeers\n")
	three := replaceSection(two, "make bench", "## make bench\n\nsecond\n")
	if !strings.HasPrefix(three, resultsIntro) || strings.Contains(three, "first") || strings.Count(three, "## ") != 2 ||
		strings.Index(three, "second") > strings.Index(three, "## make bench-peers") || !strings.HasSuffix(three, "peers\n") {
		t.Errorf("%s", three)
	}
	if again := replaceSection(three, "make bench", "## make bench\n\nsecond\n"); again != three {
		t.Errorf("writing again changes it:\n%q\n%q", three, again)
	}
}

package html

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"stet/loadgen"
)

func TestRender(t *testing.T) {
	v := 1.25
	mk := func(cmd string) *loadgen.Report {
		return &loadgen.Report{
			Schema: loadgen.Schema, Scenario: "lag", Command: cmd, Started: time.Unix(0, 0),
			Histograms: map[string]loadgen.Summary{"added_lag_ms": {Unit: "ms", Count: 3, P50: &v}},
			Curves:     map[string][][2]float64{"added_lag_ms": {{0, 1}, {50, 1.25}}},
			Series:     map[string]*loadgen.Series{"acknowledged": {Unit: "MB/s", T: []float64{0.25}, V: []float64{20}}},
			Failover:   &loadgen.FailoverResult{Rounds: 1, Timeline: []loadgen.Timeline{{StopAnsweredMs: 5, FirstAckMs: 6, FirstReadMs: 7}}},
			Checks:     []loadgen.Check{{Name: "errors", OK: false, Detail: "seven"}},
		}
	}
	var b bytes.Buffer
	if err := Render(&b, []*loadgen.Report{mk("stet <one>"), mk("</script><script>alert(1)")}); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"stet &lt;one&gt;", "1.25", "–", "not ok", `"stop_answered_ms":5`, "new uPlot("} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script>alert(1)") {
		t.Error("a command is executed by the page")
	}
	for _, from := range []string{"http://", "https://"} { // nothing is loaded from elsewhere
		if i := strings.Index(page, `src="`+from); i >= 0 {
			t.Errorf("the page loads %q", page[i:i+60])
		}
	}
	if err := Render(&b, nil); err == nil {
		t.Error("no report made a page")
	}
}

package html

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"sort"
	"time"

	"stet/loadgen"
)

//go:embed uplot.js uplot.css page.js page.css page.html
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"ms": func(v *float64) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf("%.2f", *v)
	},
	"mb":   func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) },
	"mbf":  func(v float64) string { return fmt.Sprintf("%.1f", v/1e6) },
	"f2":   func(f float64) string { return fmt.Sprintf("%.2f", f) },
	"f1":   func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"when": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
}).ParseFS(files, "page.html"))

// Render writes the page for one or several reports side by side.
func Render(w io.Writer, reports []*loadgen.Report) error {
	if len(reports) == 0 {
		return fmt.Errorf("no report to show")
	}
	read := func(name string) (string, error) {
		b, err := files.ReadFile(name)
		return string(b), err
	}
	var parts [4]string
	for i, name := range []string{"uplot.js", "uplot.css", "page.js", "page.css"} {
		var err error
		if parts[i], err = read(name); err != nil {
			return err
		}
	}
	data, err := json.Marshal(reports) // json escapes < and >, so it can stand in a script element
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{
		"UPlot": template.JS(parts[0]), "UPlotCSS": template.CSS(parts[1]), "Script": template.JS(parts[2]), "CSS": template.CSS(parts[3]),
		"Data": template.JS(data), "Reports": reports, "Rows": rows(reports),
	})
}

// row is one histogram name with its summary in every report that has it.
type row struct {
	Name      string
	Summaries []*summary
}

// summary is one cell row of the table.
type summary struct {
	loadgen.Summary
	NotValid bool
}

func rows(reports []*loadgen.Report) []row {
	names := map[string]bool{}
	for _, r := range reports {
		for n := range r.Histograms {
			names[n] = true
		}
	}
	var out []row
	for n := range names {
		x := row{Name: n}
		for _, r := range reports {
			if s, ok := r.Histograms[n]; ok {
				x.Summaries = append(x.Summaries, &summary{s, len(r.NotValid) > 0})
			} else {
				x.Summaries = append(x.Summaries, nil)
			}
		}
		out = append(out, x)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

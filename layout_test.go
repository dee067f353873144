package stet

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// rule says what a package may import of ours, beside itself and what everybody may.
type rule struct {
	allow []string // folders; "x/..." includes everything below
	why   string
}

// everybody may import these.
var everybody = []string{"internal/clock", "internal/invariant", "internal/vfs", "broker/mirrormsg", "metrics"}

// rules is the import table of ARCHITECTURE.md. The longest matching folder counts.
var rules = map[string]rule{
	"internal/clock":       {nil, "the seams stand below everything"},
	"internal/invariant":   {nil, "the seams stand below everything"},
	"internal/vfs":         {nil, "the seams stand below everything"},
	"internal/testkit/...": {[]string{"..."}, "test code; only external test packages import it"},
	"zerocopy":             {nil, "owns bytes, knows no meaning"},
	"zerocopy/batch":       {nil, "a view over bytes"},
	"zerocopy/frame":       {[]string{"zerocopy"}, "frames are read into leases"},
	"metrics":              {nil, "a leaf, so that anything can count"},
	"fetcher":              {[]string{"zerocopy/..."}, "never imports broker: it serves mirrors and followers alike"},
	"fetcher/source":       {[]string{"fetcher", "zerocopy/..."}, "where from, over TCP"},
	"quota":                {nil, "pure; the clock is passed in"},
	"broker/mirrormsg":     {nil, "a leaf that any Go program can use"},
	"broker/meta":          {nil, "pure"},
	"broker/meta/configs":  {[]string{"quota"}, "pure tables"},
	"broker/log":           {[]string{"broker/log/records", "zerocopy/..."}, "knows files, not roles"},
	"broker/log/...":       {[]string{"broker/log/...", "zerocopy/..."}, "readers of the log's files"},
	"broker/replica":       {[]string{"broker/log", "broker/meta", "fetcher", "zerocopy/..."}, "roles over logs"},
	"broker/quorum":        {[]string{"broker/meta"}, "the only importer of raft"},
	"broker/controller":    {[]string{"broker/meta/...", "broker/quorum"}, "pure decisions over the image, proposed to the quorum"},
	"broker/coord":         {[]string{"broker/meta", "zerocopy/batch"}, "declares the log it needs"},
	"broker/group":         {[]string{"broker/coord", "broker/meta", "zerocopy/batch"}, "runs on the coordinator runtime"},
	"broker/mirror":        {[]string{"broker/coord", "broker/meta/...", "broker/mirror/...", "fetcher/...", "zerocopy/..."}, "declares what it needs of the others"},
	"broker/mirror/...":    {[]string{"broker/coord", "broker/meta/...", "broker/mirror/...", "zerocopy/batch"}, "parts of the mirror"},
	"broker/api":           {[]string{"broker/...", "zerocopy/...", "fetcher"}, "translates between the wire and everything above"},
	"broker/server":        {[]string{"zerocopy", "zerocopy/frame"}, "connections; knows no API"},
	"broker":               {[]string{"..."}, "composition root"},
	"loadgen":              {[]string{"zerocopy/...", "loadgen/..."}, "measures from outside: never imports the broker"},
	"loadgen/...":          {[]string{"zerocopy/...", "loadgen/..."}, "measures from outside: never imports the broker"},
	"benchmarks/...":       {[]string{"..."}, "end to end"},
	"cmd/stet":             {[]string{"..."}, "the binary"},
	"":                     {nil, "only this test"},
}

const module = "stet"

// source is one Go file.
type source struct {
	dir, file string
	test      bool
	pkg       string
	doc       bool
	imports   []string
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			if path != "." { // a module of its own
				if m, _ := filepath.Glob(filepath.Join(path, "go.mod")); len(m) > 0 {
					return filepath.SkipDir
				}
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if dir == "." {
			dir = ""
		}
		s := source{dir: dir, file: path, test: strings.HasSuffix(path, "_test.go"), pkg: f.Name.Name, doc: isPackageDoc(f)}
		for _, i := range f.Imports {
			s.imports = append(s.imports, strings.Trim(i.Path.Value, `"`))
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func isPackageDoc(f *ast.File) bool {
	text := f.Doc.Text()
	return strings.HasPrefix(text, "Package ") || strings.HasPrefix(text, "Command ")
}

// matches says whether dir is the folder or, for "x/...", x or below it.
func matches(pattern, dir string) bool {
	if base, ok := strings.CutSuffix(pattern, "..."); ok {
		base = strings.TrimSuffix(base, "/")
		return base == "" || dir == base || strings.HasPrefix(dir, base+"/")
	}
	return pattern == dir
}

func ruleFor(dir string) (rule, bool) {
	if r, ok := rules[dir]; ok {
		return r, true
	}
	best := ""
	for p := range rules {
		if strings.HasSuffix(p, "...") && matches(p, dir) && len(p) > len(best) {
			best = p
		}
	}
	r, ok := rules[best]
	return r, ok && best != ""
}

// forbidden returns why an import is not allowed, "" if it is.
func forbidden(s source, imp string) string {
	dir, ok := strings.CutPrefix(imp, module+"/")
	if !ok {
		if imp != "github.com/hashicorp/raft" && !strings.HasPrefix(imp, "github.com/hashicorp/raft-boltdb") || s.dir == "broker/quorum" {
			return ""
		}
		return "only broker/quorum imports the raft library"
	}
	if dir == "internal/testkit" || strings.HasPrefix(dir, "internal/testkit/") {
		if s.test && strings.HasSuffix(s.pkg, "_test") || strings.HasPrefix(s.dir, "internal/testkit") {
			return ""
		}
		return "only external test packages import testkit"
	}
	if s.test && strings.HasSuffix(s.pkg, "_test") || dir == s.dir {
		return "" // external tests may look at anything
	}
	r, ok := ruleFor(s.dir)
	if !ok {
		return "the folder has no row in the import table"
	}
	if s.dir != "zerocopy" || dir != "metrics" {
		for _, e := range everybody {
			if dir == e {
				return ""
			}
		}
	}
	for _, p := range r.allow {
		if matches(p, dir) {
			return ""
		}
	}
	return r.why
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			if why := forbidden(s, imp); why != "" {
				t.Errorf("%s imports %s, which is forbidden: %s", s.file, imp, why)
			}
		}
	}
}

// TestForbiddenImportsAreFound holds the check itself: a table that allows all would pass the test above.
func TestForbiddenImportsAreFound(t *testing.T) {
	for _, c := range []struct {
		dir, imp string
		ok       bool
	}{
		{"fetcher", "stet/broker/log", false},
		{"fetcher", "stet/zerocopy/batch", true},
		{"loadgen", "stet/broker", false},
		{"loadgen", "stet/broker/mirrormsg", true},
		{"broker/log", "stet/broker/meta", false},
		{"broker/api", "stet/broker/group", true},
		{"broker/api", "github.com/hashicorp/raft", false},
		{"broker/quorum", "github.com/hashicorp/raft", true},
		{"broker/group", "stet/internal/testkit", false},
		{"zerocopy", "stet/metrics", false},
		{"zerocopy/batch", "stet/zerocopy", false},
		{"nowhere", "stet/broker", false},
		{"broker/mirrormsg", "stet/broker/meta", false},
	} {
		if got := forbidden(source{dir: c.dir, file: c.dir + "/x.go", pkg: "x"}, c.imp) == ""; got != c.ok {
			t.Errorf("%s importing %s: allowed %t, want %t", c.dir, c.imp, got, c.ok)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	has, packages := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		packages[s.dir] = true
		has[s.dir] = has[s.dir] || s.doc
	}
	for dir := range packages {
		if !has[dir] {
			t.Errorf("package %q has no package comment", dir)
		}
	}
}

// required are the dependencies that ARCHITECTURE.md asks for, each with the package that needs it.
var required = map[string]string{
	"github.com/twmb/franz-go/pkg/kgo":               "loadgen",
	"github.com/twmb/franz-go/pkg/kmsg":              "broker/api",
	"github.com/twmb/franz-go/pkg/kadm":              "loadgen",
	"github.com/twmb/franz-go/pkg/kfake":             "fetcher/source",
	"github.com/klauspost/compress/zstd":             "loadgen",
	"github.com/valyala/bytebufferpool":              "broker/api",
	"go.uber.org/atomic":                             "metrics",
	"github.com/pkg/profile":                         "cmd/stet",
	"github.com/HdrHistogram/hdrhistogram-go":        "loadgen",
	"github.com/hashicorp/raft":                      "broker/quorum",
	"github.com/prometheus/client_golang/prometheus": "metrics",
}

func TestRequiredDependenciesAreUsed(t *testing.T) {
	users := map[string]map[string]bool{}
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			if users[imp] == nil {
				users[imp] = map[string]bool{}
			}
			users[imp][s.dir] = true
		}
	}
	for dep, dir := range required {
		if !users[dep][dir] {
			var have []string
			for d := range users[dep] {
				have = append(have, d)
			}
			sort.Strings(have)
			t.Errorf("%s is to be used by %s; it is used by %v", dep, dir, have)
		}
	}
}

// TestTopLevel: nothing beside the folders of ARCHITECTURE.md.
func TestTopLevel(t *testing.T) {
	allowed := map[string]bool{}
	for _, n := range strings.Fields("fetcher zerocopy quota broker metrics loadgen benchmarks profiles scripts go.mod go.sum Makefile cmd internal README.md DESIGN.md CHANGELOG.md LICENSE doc.go bin stet-data") {
		allowed[n] = true
	}
	entries, err := filepath.Glob("*")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !allowed[e] && !strings.HasPrefix(e, ".") && !strings.HasSuffix(e, "_test.go") {
			t.Errorf("%s is not part of the layout", e)
		}
	}
}

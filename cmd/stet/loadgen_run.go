package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pkg/profile"
	"github.com/spf13/cobra"

	"stet/loadgen"
)

// profiles are the kinds of --profile.
var profiles = map[string]func(*profile.Profile){
	"cpu": profile.CPUProfile, "mem": profile.MemProfile, "mutex": profile.MutexProfile, "block": profile.BlockProfile,
}

// run runs the scenario. What was measured is shown and kept even when the run ended early.
func (f *loadFlags) run(cmd *cobra.Command, scenario func(context.Context, *loadFlags) (*loadgen.Report, error)) error {
	if f.profileKind != "" {
		defer profile.Start(profiles[f.profileKind], profile.ProfilePath("."), profile.NoShutdownHook, profile.Quiet).Stop()
	}
	if err := f.checkFiles(); err != nil {
		return err
	}
	for _, out := range f.outputs() {
		if out.file == "" {
			continue
		}
		if err := loadgen.CheckFile(out.file); err != nil { // before the run, not after it
			return fmt.Errorf("%s: %w", out.flag, err)
		}
	}
	for _, addr := range []string{f.bootstrap, f.source, f.destination} {
		if addr == "" {
			continue
		}
		cl, err := connect(cmd.Context(), addr, "")
		if err != nil {
			return err
		}
		cl.Close()
	}
	closeManifest := func() error { return nil }
	if f.manifest != "" {
		m, err := loadgen.OpenManifest(f.manifest, f.topic)
		if err != nil {
			return fmt.Errorf("--manifest: %w", err)
		}
		f.o.Acked, closeManifest = m.Acked, m.Close
	}
	f.o.Progress, f.o.Redraw = os.Stderr, isTerminal(os.Stderr)
	report, err := scenario(cmd.Context(), f)
	if merr := closeManifest(); merr != nil {
		err = errors.Join(err, fmt.Errorf("--manifest: %w", merr))
	}
	if report == nil {
		return hint(err, f)
	}
	report.Command, report.Version = "stet "+strings.Join(os.Args[1:], " "), version
	report.WriteText(os.Stdout)
	for _, left := range report.Left {
		fmt.Println(left)
	}
	for _, out := range f.outputs() {
		if out.file == "" {
			continue
		}
		if werr := out.write(report, out.file); werr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", out.flag, werr))
		}
	}
	switch {
	case err != nil:
		return hint(err, f)
	case len(report.NotValid) > 0:
		return fmt.Errorf("the run is not valid: %s", strings.Join(report.NotValid, "; "))
	case !report.OK():
		return errors.New("a check of the report is not ok")
	}
	return nil
}

// output is a file that a report goes to.
type output struct {
	flag, file string
	write      func(*loadgen.Report, string) error
}

func (f *loadFlags) outputs() []output {
	return []output{
		{"--json", f.jsonFile, (*loadgen.Report).WriteJSON},
		{"--html", f.htmlFile, func(r *loadgen.Report, file string) error { return writeHTML(file, []*loadgen.Report{r}) }},
		{"--hdr", f.hdrFile, (*loadgen.Report).WriteHDR},
	}
}

// checkFiles refuses two results in one file: the later one would be all that is left.
func (f *loadFlags) checkFiles() error {
	all := append(f.outputs(), output{flag: "--manifest", file: f.manifest})
	for i, a := range all {
		for _, b := range all[:i] {
			if a.file != "" && b.file != "" && loadgen.SameFile(a.file, b.file) {
				return usagef("%s and %s name the same file: %s", b.flag, a.flag, a.file)
			}
		}
	}
	return nil
}

// hint puts an error on one line and tells what helps.
func hint(err error, f *loadFlags) error {
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if strings.Contains(text, "there is no topic") && (f.scenario == "produce" || f.scenario == "e2e") {
		text += "; --create makes it"
	}
	return errors.New(text)
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

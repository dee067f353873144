package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/google/pprof/profile"

	"stet/benchmarks/gate"
	"stet/benchmarks/growth"
)

// gateCommand counts what the mirror path does and holds it against the budgets: no clock decides.
func gateCommand(ctx context.Context, args []string) error {
	runtime.MemProfileRate = 1 // every allocation from here on
	fs := flag.NewFlagSet("gate", flag.ContinueOnError)
	bin := fs.String("stet", "bin/stet", "the binary that is the source")
	budgetsFile := fs.String("budgets", "benchmarks/budgets.json", "budgets file; empty: none")
	out := fs.String("out", "", "folder for the records; empty: they are not kept")
	mib := fs.Int("mib", 64, "MiB of batches per topic")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *mib < 1 {
		return errors.New("--mib is above 0")
	}
	var budgets *growth.Budgets
	if *budgetsFile != "" {
		var err error
		if budgets, err = growth.LoadBudgets(*budgetsFile); err != nil {
			return err
		}
	}
	b, err := newBench(*bin)
	if err != nil {
		return err
	}
	defer b.close()
	src, err := b.startStet(b.bin, b.dir("src"), nil)
	if err != nil {
		return err
	}
	if *out == "" {
		*out = b.dir("records")
	}
	beyond := false
	for _, s := range []shape{{"16k", 8, 16 << 10, 1000}, {"1k", 8, 1100, 1000}} {
		if err := fill(ctx, src.addr, s.name, s, int64(*mib)<<20); err != nil {
			return err
		}
		rec, err := b.gate(ctx, src.addr, s.name, filepath.Join(*out, "gate-"+s.name))
		if err != nil {
			return err
		}
		fmt.Printf("gate-%s: %d batches, %.1f MiB, %.0f allocations\n", s.name, rec.Run.Batches, float64(rec.Run.Bytes)/(1<<20), rec.Run.Counts["allocs"])
		if budgets == nil {
			continue
		}
		verdicts := budgets.Apply(nil, rec)
		growth.WriteVerdicts(os.Stdout, verdicts)
		for _, v := range verdicts {
			beyond = beyond || !v.OK
		}
	}
	if beyond {
		return errors.New("the mirror path is beyond a budget")
	}
	return nil
}

// gate records one topic into dir.
func (b *bench) gate(ctx context.Context, addr, topic, dir string) (*growth.Record, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var before, after, first, last []byte
	name := filepath.Join(dir, "allocs.pb.gz")
	run, err := gate.Measure(ctx, gate.Options{
		Bootstrap: addr, Topic: topic, Dir: b.dir("gate-" + topic),
		Before: func() (err error) { first, err = allocations(); return err },
		After:  func() (err error) { last, err = allocations(); return err },
		Least:  func() { before, after = first, last },
	})
	if err != nil {
		return nil, err
	}
	if err := difference(before, after, name); err != nil {
		return nil, err
	}
	run.Scenario, run.Command, run.Commit, run.Machine, run.Date = "gate-"+topic, "benchmarks gate", commit(), machine(), time.Now().UTC().Format(time.RFC3339)
	if err := run.Save(dir); err != nil {
		return nil, err
	}
	return growth.Load(dir)
}

// allocations is the allocation profile up to now; two collections bring it up to date.
func allocations() ([]byte, error) {
	runtime.GC()
	runtime.GC()
	var buf bytes.Buffer
	err := pprof.Lookup("allocs").WriteTo(&buf, 0)
	return buf.Bytes(), err
}

// difference writes what was allocated between two profiles, but for what taking the first one took.
func difference(before, after []byte, file string) error {
	b, err := profile.ParseData(before)
	if err != nil {
		return err
	}
	a, err := profile.ParseData(after)
	if err != nil {
		return err
	}
	b.Scale(-1)
	diff, err := profile.Merge([]*profile.Profile{a, b})
	if err != nil {
		return err
	}
	diff.Sample = slices.DeleteFunc(diff.Sample, func(s *profile.Sample) bool {
		return slices.ContainsFunc(s.Location, func(l *profile.Location) bool {
			return slices.ContainsFunc(l.Line, func(x profile.Line) bool { return x.Function != nil && x.Function.Name == "main.allocations" })
		})
	})
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(diff.Compact().Write(f), f.Close())
}

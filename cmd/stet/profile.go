package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"stet/benchmarks/growth"
)

func profileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "profile",
		Short:   "Compare recorded profiles",
		Example: "  stet profile compare .build/profiles/base/catchup-16k profiles/catchup-16k --budgets benchmarks/budgets.json",
	}
	var budgets string
	var asJSON bool
	compare := &cobra.Command{
		Use:   "compare BASE HEAD",
		Short: "What grew per GiB, function by function",
		Long: "Compare two profile folders (of `make profile`) or two profile files: what grew per GiB,\n" +
			"function by function. With --budgets, exit 1 when one is exceeded.",
		Example: "  stet profile compare base/catchup-16k head/catchup-16k --budgets benchmarks/budgets.json --json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("profile compare needs BASE and HEAD")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return compareProfiles(args[0], args[1], budgets, asJSON) },
	}
	compare.Flags().StringVar(&budgets, "budgets", "", "file of budgets")
	compare.Flags().BoolVar(&asJSON, "json", false, "print JSON (schema "+growth.Schema+")")
	cmd.AddCommand(compare)
	return cmd
}

func compareProfiles(base, head, budgets string, asJSON bool) error {
	b, err := growth.Load(base)
	if err != nil {
		return err
	}
	h, err := growth.Load(head)
	if err != nil {
		return err
	}
	var limits *growth.Budgets
	if budgets != "" {
		if limits, err = growth.LoadBudgets(budgets); err != nil {
			return fmt.Errorf("--budgets: %w", err)
		}
	}
	r := growth.Compare(b, h, limits)
	if asJSON {
		if err := r.WriteJSON(os.Stdout); err != nil {
			return err
		}
	} else {
		r.WriteText(os.Stdout)
	}
	if !r.OK() {
		if asJSON {
			return errSilent
		}
		return fmt.Errorf("beyond a budget")
	}
	return nil
}

// Environment variables that turn on the profiles which cost something, for `make profile`.
const (
	envMutexFraction = "STET_PROFILE_MUTEX" // one of so many contentions is recorded
	envBlockRate     = "STET_PROFILE_BLOCK" // ns of blocking per recorded event
)

// profileRates sets them; profiles are read from /debug/pprof.
func profileRates() error {
	for _, v := range []struct {
		name string
		set  func(int)
	}{{envMutexFraction, func(n int) { runtime.SetMutexProfileFraction(n) }}, {envBlockRate, runtime.SetBlockProfileRate}} {
		text := os.Getenv(v.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return usagef("%s=%s is not a number from 0 on", v.name, text)
		}
		v.set(n)
	}
	return nil
}

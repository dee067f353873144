package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"stet/loadgen"
	"stet/loadgen/html"
)

// reportCommand shows reports that were written with --json.
func reportCommand() *cobra.Command {
	var page string
	cmd := &cobra.Command{
		Use:     "report FILE.json...",
		Short:   "Show one or several reports side by side",
		Long:    "Show reports that were written with --json, as text and with --html as one page with plots.",
		Example: "  stet loadgen report before.json after.json --html compare.html",
		RunE: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return usagef("loadgen report needs at least one report file")
			}
			for _, f := range files {
				if page != "" && loadgen.SameFile(page, f) {
					return usagef("--html %s is the report %s, which would be lost", page, f)
				}
			}
			var reports []*loadgen.Report
			for _, f := range files {
				r, err := loadgen.ReadReport(f)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			if page != "" {
				if err := loadgen.CheckFile(page); err != nil {
					return fmt.Errorf("--html: %w", err)
				}
			}
			for i, r := range reports {
				fmt.Printf("run %d: %s, %s\n", i, files[i], r.Command)
				r.WriteText(os.Stdout)
			}
			if page != "" {
				if err := writeHTML(page, reports); err != nil {
					return fmt.Errorf("--html: %w", err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&page, "html", "", "file for the page")
	return cmd
}

func writeHTML(file string, reports []*loadgen.Report) error {
	return loadgen.WriteFile(file, func(w io.Writer) error { return html.Render(w, reports) })
}

// Command stet is a Kafka-protocol broker that mirrors other Kafka clusters byte
// for byte, and the tools that go with it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the Makefile.
var version = "dev"

// Exit codes of SPEC section 15.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is wrong usage: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// uncleanError is an error of shutting down, which a signal did not cause.
type uncleanError struct{ error }

func (e uncleanError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "broker" {
		relaxMonitor()
	}
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var usage usageError
	text := strings.TrimSpace(err.Error())
	if errors.As(err, &usage) || strings.HasPrefix(text, "unknown command") {
		fmt.Fprintf(os.Stderr, "stet: %s\n", text)
		fmt.Fprintf(os.Stderr, "try: %s --help\n", commandOf(root, args))
		return exitUsage
	}
	var unclean uncleanError
	if errors.As(err, &unclean) {
		fmt.Fprintf(os.Stderr, "stet: the broker has ended, not cleanly: %s\n", text)
		return exitFailed
	}
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "stet: interrupted")
		return exitFailed
	}
	if strings.Contains(text, "broker is too old") {
		text = "the server does not know this request: it is not a Stet broker (--bootstrap-server is the destination of a mirror), or an older one"
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintf(os.Stderr, "stet: %s\n", text)
	}
	return exitFailed
}

// commandOf is the command that the arguments reach, as a user types it.
func commandOf(root *cobra.Command, args []string) string {
	if c, _, err := root.Find(args); err == nil {
		return c.CommandPath()
	}
	return root.CommandPath()
}

// errSilent ends with exit code 1 after everything was said.
var errSilent = errors.New("")

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "stet",
		Short:         "A Kafka-protocol broker that mirrors other clusters byte for byte",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Example:       "  stet demo\n  stet broker --config server.properties",
	}
	root.SetVersionTemplate("stet {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{flagError(cmd, err)} })
	root.AddCommand(brokerCommand(), demoCommand(), mirrorsCommand(), configsCommand(), verifyCommand(), dumpLogCommand(), loadgenCommand(), profileCommand())
	for _, c := range root.Commands() {
		c.SetHelpTemplate(helpTemplate)
	}
	root.SetHelpTemplate(helpTemplate)
	return root
}

// flagValue is how the flag library says that it cannot read a value; what follows names a function of Go.
var flagValue = regexp.MustCompile(`^invalid argument "(.*)" for "(?:-., )?--([a-z-]+)" flag: `)

// flagError says what a flag's value should have been.
func flagError(cmd *cobra.Command, err error) error {
	m := flagValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	flag := cmd.Flags().Lookup(m[2])
	if flag == nil {
		return err
	}
	kind := map[string]string{"duration": "a duration such as 30s", "int": "a whole number", "uint64": "a whole number from 0 on", "bool": "true or false"}[flag.Value.Type()]
	if kind == "" {
		return err
	}
	return fmt.Errorf("--%s %q is not %s", m[2], m[1], kind)
}

// helpTemplate puts the example last, where the eye ends up.
const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasExample}}

Example:
{{.Example}}{{end}}
`

// noArgs refuses positional arguments as wrong usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// Package exngo is the exn-go command: it builds Go programs with direct sockets, by the
// stock go command and an overlay of the standard library (go build -overlay).
//
//	user's module ──────────────────────────────┐
//	GOROOT/src/net ── patchNet ──▶ net          ├─▶ go build -overlay ─▶ the program
//	           └─ makeSecondNet ─▶ internal/exnet/net
//	exnet.Sources ─── moveHome ──▶ internal/exnet/…
//	GOROOT/src/runtime ── patchRuntime ──▶ runtime
//
// Package net of the program asks internal/exnet/godirect for each connection whether it
// may be direct. Direct sockets are below package net, then, so they cannot use it: they
// use a second copy of the release's, which is not patched. All of it is in the standard
// library as the compiler sees it; the user's module, its go.mod, its vendor folder and its
// workspace are not touched, and the build cache knows by itself what has changed.
package exngo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"exnet/internal/cli"
	"exnet/internal/command"
	_ "exnet/internal/linux"

	"github.com/spf13/cobra"
)

// verbs are the go commands that build, or look at what would be built.
var verbs = []string{"build", "install", "list", "run", "test", "vet"}

// Run is the command.
func Run(args []string, stdout, stderr io.Writer) int {
	return command.Run(context.Background(), newRoot(), args, stdout, stderr)
}

// newRoot returns exn-go's commands.
func newRoot() *cobra.Command {
	root := command.New("exn-go", "build Go programs with direct sockets",
		`exn-go builds Go programs with direct sockets: TCP connections whose peer has
them, too, skip TCP. It is the go command with an overlay of package net; sources
and go.mod stay as they are.`)
	root.Example = `exn-go build -o server ./cmd/server
exn-run --loopback --explain -- ./server`
	root.Annotations = map[string]string{command.EndKey: `Everything but building is left to the go command, and build, install, list, run,
test and vet take its flags alone. The program obeys EXNET_LOOPBACK, EXNET_RULES
and EXNET_BROKER as under exn-run; without any of these it uses plain TCP.
Exit status: that of the go command; 1 something failed, 2 wrong usage.`}
	for _, verb := range verbs {
		root.AddCommand(&cobra.Command{
			Use: verb + " [flags of the go command]", Short: "go " + verb + ", with direct sockets", DisableFlagParsing: true,
			Long: "Runs go " + verb + " with direct sockets. The flags are those of the go command: see\ngo help " + verb + ".",
			RunE: func(_ *cobra.Command, args []string) error { return runGo(verb, args) },
		})
	}
	root.AddCommand(&cobra.Command{
		Use: "env", Short: "print variables for another build system",
		Long:    "Prints variables for a shell, under which the go command itself builds with direct\nsockets.",
		Example: `eval "$(exn-go env)"; go build ./...`,
		Args:    command.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return printEnv(c.OutOrStdout()) },
	}, &cobra.Command{
		Use: "explain BINARY...", Short: "say whether exn-go built a binary",
		Long: "Says for each binary whether it has direct sockets, and which exn-go built it.",
		RunE: func(c *cobra.Command, args []string) error { return explainAll(args, c.OutOrStdout()) },
	})
	return root
}

// prepareOverlay makes the overlay for a directory, on top of the user's, which names a file
// relative to there. That of GOFLAGS is used if there is none.
func prepareOverlay(dir, under string) (t toolchain, file string, err error) {
	if t, err = findToolchain(dir); err != nil {
		return t, "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return t, "", err
	}
	if t, err = t.outsideCache(cache); err != nil {
		return t, "", err
	}
	if under == "" {
		under = flagInGOFLAGS(t.GOFLAGS, "overlay")
	}
	user, err := readOverlay(under, dir)
	if err != nil {
		return t, "", err
	}
	tree, err := makeTree(t.GOROOT, user)
	if err != nil {
		return t, "", fmt.Errorf("%s: %w", t.GOVERSION, err)
	}
	file, err = tree.writeTree(cache)
	return t, file, err
}

// noVet is a flag for go test. Vet runs in the directory of each package below the one that
// is tested, and those of direct sockets have none.
const noVet = "-vet=off"

// runGo becomes the go command.
func runGo(verb string, args []string) error {
	c, err := parseCommand(verb, args)
	if err != nil {
		return err
	}
	if verb == "vet" {
		command, err := exec.LookPath("go")
		if err != nil {
			return fmt.Errorf("%w: %w", ErrGo, err)
		}
		return fmt.Errorf("%s: %w", command, syscall.Exec(command, append([]string{"go", verb}, args...), os.Environ()))
	}
	t, file, err := prepareOverlay(c.dir, c.overlay)
	if err != nil {
		return err
	}
	all := []string{"go", verb}
	if c.dir != "" {
		all = append(all, "-C", c.dir) // it has to be the first
	}
	all = append(all, "-overlay="+file)
	if verb == "test" {
		all = append(all, noVet)
	}
	all = append(all, c.args...)
	return fmt.Errorf("%s: %w", t.Command, syscall.Exec(t.Command, all, t.goEnviron(os.Environ())))
}

// printEnv prints variables for a shell.
func printEnv(stdout io.Writer) error {
	t, file, err := prepareOverlay("", "")
	if err != nil {
		return err
	}
	var flags []string
	for _, f := range splitQuoted(t.GOFLAGS) {
		if name, _, _ := flagOf(f); name != "overlay" && name != "vet" {
			flags = append(flags, f)
		}
	}
	flags = append(flags, "-overlay="+file, noVet)
	for i := range flags {
		if flags[i], err = quoteFlag(flags[i]); err != nil {
			return err
		}
	}
	for _, v := range append(t.goVariables(), "GOFLAGS="+strings.Join(flags, " ")) {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(stdout, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	return nil
}

// explainAll is exn-go explain.
func explainAll(names []string, stdout io.Writer) error {
	if len(names) == 0 {
		return cli.Usagef("name a binary")
	}
	var errs []error
	for _, name := range names {
		b, err := Explain(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		fmt.Fprintf(stdout, "%s: %v\n", name, b)
	}
	return errors.Join(errs...)
}

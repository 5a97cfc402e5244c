// Session runs commands on a terminal and draws what it showed, as an SVG that
// shows it in the order and at the speed in which it came:
//
//	go run ./test/session docs/session.sh docs/session.svg
//
// Each line of the first file is typed into one bash; a line that begins with # is typed, too, and
// does nothing; one that begins with #! is not shown and only run. They run as root, in namespaces
// of their own, with an empty /run and /dev/shm, and what they have begun ends with them. The
// commands of this checkout come first in PATH.
//
// Pauses are cut to a second. A program that does not animate SVG shows all of it.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"exnet/internal/tempdir"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "session:", err)
		os.Exit(1)
	}
}

// run runs the commands of the first file and writes the drawing to the second.
func run(ctx context.Context, args []string) (err error) {
	if len(args) != 2 {
		return errors.New("name the file of commands, and the SVG to write")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	bin, err := buildCommands(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tempdir.Remove(bin)) }()
	steps, err := recordLines(ctx, bin, strings.Split(strings.TrimSpace(string(text)), "\n"))
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], drawSteps(steps), 0o644)
}

// buildCommands makes the commands of this checkout, and returns the directory that they are in.
func buildCommands(ctx context.Context) (string, error) {
	dir, err := tempdir.New("session")
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", dir, "./cmd/...").CombinedOutput(); err != nil {
		_ = tempdir.Remove(dir)
		return "", fmt.Errorf("go build: %w\n%s", err, bytes.TrimSpace(out))
	}
	return dir, nil
}

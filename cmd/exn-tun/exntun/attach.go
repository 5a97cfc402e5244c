package exntun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exnet/directsockets/inject"
	"exnet/directsockets/preload"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/mark"

	"github.com/spf13/cobra"
)

func newAttach() *cobra.Command {
	return &cobra.Command{
		Use: "attach [flags] PID", Short: "give a running static program direct sockets",
		Long: `Puts the library of direct sockets into a program that runs: a static one, or
one of Go without cgo. The connections that it makes and accepts from now on can
be direct; those that it has stay on TCP. It stands still for some milliseconds,
in which some system calls return EINTR, as after SIGSTOP and SIGCONT.

exn-tun agent does so by itself for programs that ask for direct sockets. It
takes the rights of a debugger: as this user, or as root where
kernel.yama.ptrace_scope is not 0. exn-run does the same as a program starts.`,
		Example: `exn-tun attach "$(pidof server)"`,
		Args:    command.Arguments,
		RunE: func(c *cobra.Command, args []string) error {
			pid, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil || pid <= 0 || pid > math.MaxInt32 {
				return cli.Usagef("%q is not the number of a process", args[0])
			}
			return runAttach(c.Context(), programOf(c), int(pid))
		},
	}
}

// staysOnTCP precedes why a program was not attached to.
const staysOnTCP = " stays on TCP: "

func runAttach(ctx context.Context, p program, pid int) error {
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	target, err := os.Readlink(exe)
	if err != nil && !processRuns(pid) {
		return noProcess(pid)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	name := fmt.Sprintf("%s (%d)", cli.Printable(filepath.Base(target)), pid)
	if err := attachTo(ctx, exe, pid); errors.Is(err, inject.ErrHas) {
		fmt.Fprintf(p.stderr, "%s: %v\n", name, err)
	} else if err != nil {
		return fmt.Errorf("%s%s%w", name, staysOnTCP, err)
	}
	return nil
}

func attachTo(ctx context.Context, exe string, pid int) error {
	if mark.Direct(exe) {
		return nil // it has direct sockets already
	}
	library, err := preload.BuildFree(ctx)
	if err != nil {
		return err
	}
	return inject.Attach(pid, library)
}

// attachLimit bounds how long it may take. A program whose tracer is killed is plain or whole.
const attachLimit = 20 * time.Second

// attachByChild attaches to a program in a process of its own: what is read of a stranger's program
// can hurt only that. took does not count the library's build: the first program would pay for all.
func attachByChild(ctx context.Context, pid int) (took time.Duration, err error) {
	if _, err := preload.BuildFree(ctx); err != nil { // it may take longer than attachLimit
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "attach", strconv.Itoa(pid))
	cmd.Args[0] = "exn-tun"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	begin := time.Now()
	err = cmd.Run()
	took = time.Since(begin)
	if err == nil {
		return took, nil
	}
	if ctx.Err() != nil {
		return took, fmt.Errorf("it took longer than %v", attachLimit)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	if _, reason, ok := strings.Cut(line, staysOnTCP); ok {
		line = reason
	}
	return took, errors.New(line)
}

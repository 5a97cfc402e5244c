package exnrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"exnet/internal/cli"
)

// reserveRoutes has exn-tun reserve the routes of --reserve until this process, which may become
// the program, has ended.
func reserveRoutes(o options, m messages) error {
	if o.reserve == "" {
		return nil
	}
	kind := "--pattern"
	if _, err := os.Stat(o.reserve); err != nil && !strings.ContainsAny(o.reserve, "./") {
		kind = "--primitive"
	}
	pid := strconv.Itoa(os.Getpid())
	args := []string{"route", "reserve", kind, o.reserve, "--while", pid, "--id", filepath.Base(o.reserve) + "." + pid, "--fabric", o.fabric}
	if o.dir != "" {
		args = append(args, "--dir", o.dir)
	}
	cmd := exec.Command(findTool("exn-tun"), args...)
	cmd.Stdout, cmd.Stderr = m.stderr, m.stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return cli.ExitStatus(exitFailure) // it has said why
	}
	if err != nil {
		return fmt.Errorf("--reserve: exn-tun route: %w", err)
	}
	return nil
}

// findTool is a program that is beside exn-run or, if none is, in PATH.
func findTool(name string) string {
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), name); exec.Command(path).Err == nil {
			return path
		}
	}
	return name
}

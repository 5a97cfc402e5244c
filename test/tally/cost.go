package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"exnet/internal/child"
)

// measureCost runs the test of a package, whose directory is the current one, and adds to a file
// the processor time that it, and the processes which it started and waited for, have used. It
// returns the test's exit status.
func measureCost(file string, argv []string) (status int, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// go test asks a test that takes too long for its goroutines by SIGQUIT, and then kills it.
	runtime.LockOSThread() // the death of this thread, not of the process, is the parent's
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range asked {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	end := cmd.ProcessState
	f, err := os.OpenFile(costsFile(file), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintln(f, int64(end.UserTime()+end.SystemTime()), dir)
	return child.ShellStatus(end), errors.Join(err, f.Close())
}

// costsFile names the file beside an account's that has a line for each test which ran.
func costsFile(file string) string { return file + ".cost" }

// mostCosts is how many packages are listed.
const mostCosts = 12

// printCosts lists the packages whose tests have used most processor time.
func printCosts(file string, w io.Writer) error {
	f, err := os.Open(costsFile(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	used := map[string]time.Duration{}
	var all time.Duration
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		number, dir, _ := strings.Cut(lines.Text(), " ")
		ns, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", costsFile(file), err)
		}
		used[dir] += time.Duration(ns)
		all += time.Duration(ns)
	}
	fmt.Fprintf(w, "tests used %.0f s of CPU, most of it:\n", all.Seconds())
	dirs := slices.SortedFunc(maps.Keys(used), func(a, b string) int {
		return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b))
	})
	for _, dir := range dirs[:min(mostCosts, len(dirs))] {
		name, err := filepath.Rel(root, dir)
		if err != nil {
			name = dir
		}
		fmt.Fprintf(w, "%7.0f s  %s\n", used[dir].Seconds(), name)
	}
	return lines.Err()
}

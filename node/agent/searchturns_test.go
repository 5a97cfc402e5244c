package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/internal/logger"

	"golang.org/x/sys/unix"
)

// Who has many namespaces, whose processes take long to be read each time, keeps nobody else from
// being found, neither by a look nor at the door.
func TestSearchByAccount(t *testing.T) {
	proc := t.TempDir()
	group := func(of string) string { return "0::/machine/libpod-" + strings.Repeat(of, 32) + ".scope\n" }
	var answers sync.WaitGroup
	var pipes []string
	defer func() {
		for _, path := range pipes { // those that nobody has read
			if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				defer unix.Close(fd)
			}
		}
		answers.Wait()
	}()
	const many = 64
	for i := range many {
		path := filepath.Join(fakeProcess(t, proc, 1000+i, uint64(100+i), "", group("ab")), "environ")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(path, 0o644); err != nil {
			t.Fatal(err)
		}
		pipes = append(pipes, path)
		answers.Go(func() {
			w, err := os.OpenFile(path, os.O_WRONLY, 0) // until somebody reads
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(2 * searchTime)
			w.Close()
		})
	}
	s, now := newSearch(proc), time.Now()
	mustFind(t, s, now) // of this account something is known
	fakeProcess(t, proc, 10, 50, "EXNET=1\x00", group("cd"))
	now = now.Add(lookTime)
	if found := mustFind(t, s, now); found[50] != 10 {
		t.Error("a process of another container is not found: ", found)
	}
	a := &agent{log: logger.Discard{}, lines: newAccounts(logger.Discard{}), proc: proc, search: s, places: make(map[uint64]*place), told: make(map[uint64]time.Time), door: new(door)}
	a.door.resetBudget()
	for i := range 4 { // they knock first
		a.serveCaller(1000+many-1-i, now)
	}
	fakeProcess(t, proc, 11, 51, "EXNET=1\x00", group("ef"))
	a.serveCaller(11, now)
	if p := s.known[11]; p == nil || !p.asks {
		t.Error("who knocks after a process that takes long is not heard")
	}
}

// A look tries namespaces that are left out again, each in its turn, and not all of very many.
func TestLeftOutInTurns(t *testing.T) {
	const many = 200_000
	a := &agent{log: logger.Discard{}, lines: newAccounts(logger.Discard{}), proc: t.TempDir(), places: make(map[uint64]*place), told: make(map[uint64]time.Time)}
	found, now := make(map[uint64]int), time.Now()
	for i := range uint64(many) {
		found[100+i], a.told[100+i] = int(100+i), now
	}
	tried := func(at time.Time) (n int) {
		for _, last := range a.told {
			if last.Equal(at) {
				n++
			}
		}
		return n
	}
	for look, rest := 1, many; look <= 20 && rest > 0; look++ {
		at := now.Add(time.Duration(look) * lookTime)
		a.meetAll(found, at)
		n, left := tried(at), tried(now)
		if n == 0 || n > many/2 {
			t.Fatalf("look %d: %d of %d were tried", look, n, many)
		}
		if left != max(rest-n, 0) {
			t.Fatalf("look %d: %d were tried, and those that were never tried became %d fewer", look, n, rest-left)
		}
		rest = left
	}
}

// logged counts what was logged of each process.
type logged map[string]int

func (l logged) Info(string, ...any) { l["info"]++ }
func (l logged) Warn(msg string, args ...any) {
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "pid" {
			l[fmt.Sprint(args[i+1])]++
		}
	}
}

// An account that makes very many namespaces does not fill the log, nor take another's lines.
func TestLogOfAnAccount(t *testing.T) {
	const many, other = 500, 7
	proc, log := t.TempDir(), make(logged)
	a := &agent{log: log, lines: newAccounts(log), proc: proc, places: make(map[uint64]*place), told: make(map[uint64]time.Time)}
	group := func(id string) string { return "0::/docker/" + strings.Repeat(id, 32) + "\n" }
	meet := func(pid int, of string) {
		t.Helper()
		net := filepath.Join(fakeProcess(t, proc, pid, uint64(pid), "EXNET=1\x00", group(of)), "ns/net")
		if err := errors.Join(os.Remove(net), os.WriteFile(net, nil, 0o600)); err != nil { // no namespace: it is left out
			t.Fatal(err)
		}
		a.serveAsker(uint64(pid), pid, time.Now())
	}
	for i := range many {
		meet(1000+i, "ab")
	}
	if len(log) == 0 || len(log) > many/10 {
		t.Errorf("%d lines of one account with %d namespaces", len(log), many)
	}
	meet(other, "cd")
	if log[fmt.Sprint(other)] != 1 {
		t.Error("another account has no line")
	}
}

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"exnet/fabric/link/ofi"
	"exnet/internal/longtest"
)

// Two hosts are linked by libfabric, come together again when a helper is killed, and do
// not link with one that uses something else.
func TestRootOFI(t *testing.T) {
	longtest.Skip(t)
	needShow(t)
	if err := ofi.Check(t.Context(), "tcp"); errors.Is(err, ofi.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	checkLeaks(t)
	s := newSite(t)
	s.key("ca", "--out", "ca")
	for i := 1; i <= 3; i++ {
		s.key("node", "--node", strconv.Itoa(i), "--ca", "ca", "--out", "node"+strconv.Itoa(i))
	}
	s.refused(1, "no way by FI_EP_MSG", "--link", "ofi:nonsense")
	one := s.up(1, "--link", "ofi:tcp")
	one.says(t, "NOT ENCRYPTED")
	two := s.up(2, "--link", "ofi", "--join", s.at(1))
	three := s.up(3, "--join", s.at(1))
	s.linked(true, 1, 2)
	is := func(state, link string, links uint64) func() error {
		return func() error {
			if p := s.peers(1)[2]; p.State != state || p.Link != link || p.Links < links {
				return fmt.Errorf("%+v, want %s by %q", p, state, link)
			}
			return nil
		}
	}
	eventually(t, is("up", "ofi:tcp", 1))
	status := s.in(s.hosts[0], s.exnTun, "status", "-v", "--dir", filepath.Join(s.dir, "host1"))
	if !strings.Contains(status, "ofi:tcp, plaintext") {
		t.Errorf("status:\n%s", status)
	}
	three.says(t, "the peer uses --link ofi")
	one.says(t, "does it use --link ofi, too?")
	if p := s.peers(1)[3]; p.State == "up" {
		t.Errorf("one end has libfabric, the other has not: %+v", p)
	}
	three.terminate(t)
	three = s.up(3, "--join", s.at(2), "--link", "ofi:tcp")
	s.linked(true, 1, 2, 3)
	s.show("ofi:tcp", "fd00:10:2::2")
	links := s.peers(1)[2].Links
	helpers := helpersOf(t, one.cmd.Process.Pid)
	if len(helpers) != 2 {
		t.Fatalf("%d helpers", len(helpers))
	}
	for _, pid := range helpers {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, is("up", "ofi:tcp", links+1))
	s.pings(1, 2)
	// A node that is killed leaves no helper.
	left := helpersOf(t, two.cmd.Process.Pid)
	two.stop()
	eventually(t, func() error {
		for _, pid := range left {
			// That of a zombie, which nobody may reap, is empty.
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(b), ofi.Name) {
				return fmt.Errorf("helper %d lives", pid)
			}
		}
		return nil
	})
	for _, p := range []*process{three, one} {
		p.terminate(t)
	}
}

// helpersOf returns the helpers that a node has started.
func helpersOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatal("no list of children", err)
	}
	for _, l := range lists {
		b, _ := os.ReadFile(l) // a thread that has ended has none
		for _, f := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			if c, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n)); err == nil && strings.HasPrefix(string(c), ofi.Name) {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

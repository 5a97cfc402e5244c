package netns_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

// roleEnv makes the test program play a part in another process's test.
const (
	roleEnv = "EXNET_NETNS_ROLE"
	argEnv  = "EXNET_NETNS_ARG"
)

func playRole(role string) int {
	switch role {
	case "crash": // make a named namespace and wait to be killed
		if _, err := netns.NewNamed(os.Getenv(argEnv)); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("ready")
		select {}
	case "userns":
		return inUserNS(os.Getenv(argEnv))
	}
	return 2
}

func self(t testing.TB, role, arg string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+role, argEnv+"="+arg)
	return cmd
}

func testName(t testing.TB, suffix string) string {
	t.Helper()
	return fmt.Sprintf("exntest-%d-%s", os.Getpid(), suffix)
}

// listed reports whether "ip netns" shows the name.
func listed(t testing.TB, name string) bool {
	t.Helper()
	out, err := exec.Command("ip", "netns").Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(strings.Fields(string(out)), name)
}

func TestNewNamedBadName(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "a b", "-a", ".a", "a\n", strings.Repeat("a", 65)} {
		if _, err := netns.NewNamed(name); !errors.Is(err, netns.ErrName) {
			t.Errorf("%q: got %v, want %v", name, err, netns.ErrName)
		}
	}
}

func TestRootNamed(t *testing.T) {
	netnstest.CheckFDs(t)
	netnstest.Require(t)
	name := testName(t, "named")
	n, err := netns.NewNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if !listed(t, name) {
		t.Errorf("ip netns does not show %s", name)
	}
	if out, err := exec.Command("ip", "netns", "exec", name, "ip", "-o", "link").CombinedOutput(); err != nil || bytes.Contains(out, []byte("eth0")) {
		t.Errorf("ip netns exec: %v\n%s", err, out)
	}
	if n.Name() != name || n.Path() != filepath.Join("/run/netns", name) {
		t.Errorf("name %q, path %q", n.Name(), n.Path())
	}

	_, err = netns.NewNamed(name)
	if !errors.Is(err, netns.ErrNameTaken) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("a second one: %v, want %v and the process", err, netns.ErrNameTaken)
	}

	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if listed(t, name) {
		t.Errorf("ip netns still shows %s", name)
	}
	if _, err := os.Stat(filepath.Join("/run/exn-netns", name)); !os.IsNotExist(err) {
		t.Errorf("the marker is still there: %v", err)
	}
}

// A namespace that somebody else made is never touched.
func TestRootNamedTaken(t *testing.T) {
	netnstest.CheckFDs(t)
	netnstest.Require(t)
	name := testName(t, "foreign")
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer exec.Command("ip", "netns", "del", name).Run()

	_, err := netns.NewNamed(name)
	if !errors.Is(err, netns.ErrNameTaken) || !strings.Contains(err.Error(), "ip netns del "+name) {
		t.Errorf("got %v, want %v and what to do", err, netns.ErrNameTaken)
	}
	if _, err := netns.RemoveStale(); err != nil {
		t.Error(err)
	}
	if !listed(t, name) {
		t.Error("somebody else's namespace is gone")
	}
}

// crash leaves a named namespace behind as a killed process does.
func crash(t testing.TB, name string) {
	t.Helper()
	cmd := self(t, "crash", name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err := out.Read(line); err != nil || string(line) != "ready" {
		t.Fatalf("%q %v", line, err)
	}
	if removed, err := netns.RemoveStale(); err != nil || slices.Contains(removed, name) {
		t.Errorf("removed %v (%v) while the owner lives", removed, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !listed(t, name) {
		t.Fatalf("%s is not left behind", name)
	}
}

func TestRootStale(t *testing.T) {
	netnstest.CheckFDs(t)
	netnstest.Require(t)

	t.Run("sweep", func(t *testing.T) {
		name := testName(t, "sweep")
		crash(t, name)
		removed, err := netns.RemoveStale()
		if err != nil || !slices.Contains(removed, name) || listed(t, name) {
			t.Errorf("removed %v, %v", removed, err)
		}
	})
	t.Run("same name again", func(t *testing.T) {
		name := testName(t, "again")
		crash(t, name)
		n, err := netns.NewNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil || listed(t, name) {
			t.Errorf("%v", err)
		}
	})
	t.Run("name now another's", func(t *testing.T) {
		name := testName(t, "reused")
		crash(t, name)
		for _, verb := range []string{"del", "add"} {
			if out, err := exec.Command("ip", "netns", verb, name).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		defer exec.Command("ip", "netns", "del", name).Run()
		if _, err := netns.RemoveStale(); err != nil {
			t.Error(err)
		}
		if !listed(t, name) {
			t.Error("somebody else's namespace is gone")
		}
	})
	t.Run("mount gone", func(t *testing.T) { // as after a reboot with a lasting /run
		name := testName(t, "plain")
		crash(t, name)
		if out, err := exec.Command("umount", filepath.Join("/run/netns", name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		n, err := netns.NewNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
	})
}

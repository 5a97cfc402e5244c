package housetest

import (
	"os/exec"
	"strings"
	"testing"
)

// The unit for systemd has few rights: an exposure of at most 4 of 10.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	if help, err := exec.Command("systemd-analyze", "--help").CombinedOutput(); err != nil || !strings.Contains(string(help), "--offline") {
		t.Skipf("systemd-analyze cannot look at files: %v", err)
	}
	rate := func(threshold string) (string, error) {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+threshold, root+"/packaging/exn-tun@.service").CombinedOutput()
		return string(out), err
	}
	if out, err := rate("40"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := rate("10"); err == nil {
		t.Error("no threshold is too low: nothing is measured")
	}
}

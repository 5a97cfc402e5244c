package housetest

import (
	"os/exec"
	"strings"
	"testing"
)

// The units for systemd have few rights: an exposure of at most 4 of 10.
func TestUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	if help, err := exec.Command("systemd-analyze", "--help").CombinedOutput(); err != nil || !strings.Contains(string(help), "--offline") {
		t.Skipf("systemd-analyze cannot look at files: %v", err)
	}
	for _, unit := range []string{"exn-tun@.service", "exnet.service"} {
		rate := func(threshold string) (string, error) {
			out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+threshold, root+"/packaging/"+unit).CombinedOutput()
			return string(out), err
		}
		if out, err := rate("40"); err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		if _, err := rate("10"); err == nil {
			t.Errorf("%s: no threshold is too low: nothing is measured", unit)
		}
	}
}

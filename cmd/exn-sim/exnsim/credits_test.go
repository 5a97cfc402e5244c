package exnsim

import (
	"regexp"
	"testing"
)

func TestCredits(t *testing.T) {
	status, stdout, stderr := call(t, "credits", "--packets", "2000")
	if status != 0 || stderr != "" {
		t.Fatalf("%d\n%s", status, stderr)
	}
	for _, want := range []string{
		`(?m)^10 +20 +6\.\d\d +\d+ % +\d+ % +\d+\.\d +\d+ +3114$`, // figures 36 to 38
		`(?m)^50 +- +- +\d`,                  // too few credits for a bulk
		`(?m)^posted +250 +0$`,               // stalled
		`(?m)^response +2000 +2000$`,         // and not
		`(?m)^10 Gbps Ethernet MAC +500 ns$`, // table 8
		`(?m)^sum +893 ns$`,
		`(?m)^sum +1478 ns$`,
	} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--credits", "68"}, "68 credits: use 69 to 1048576"},
		{[]string{"--packets", "0"}, "0 packets: send at least 1"},
	} {
		status, _, stderr := call(t, append([]string{"credits"}, c.args...)...)
		if status == 0 || !regexp.MustCompile(c.want).MatchString(stderr) {
			t.Errorf("%v: %d, %s", c.args, status, stderr)
		}
	}
}

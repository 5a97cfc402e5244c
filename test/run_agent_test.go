package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/internal/netns"
	"exnet/test/testlab"
)

// What a user types first, exn-run --explain in a namespace in which nothing has asked for direct
// sockets yet, is direct by the host's agent, as any later program is.
func TestRootRunAgentFirst(t *testing.T) {
	needRun(t, "ip", "python3", "unshare")
	if !netns.Privileged() {
		t.Skip("needs root")
	}
	bin, err := testlab.Build("exn-tun", "exn-run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	out, err := exec.CommandContext(t.Context(), "unshare", "-nmpf", "--mount-proc", "--kill-child", script(t, "agent_first.sh"), bin).CombinedOutput()
	if strings.Contains(string(out), "needs BPF and cgroup2") {
		t.Skip(string(out))
	}
	if err != nil || !strings.Contains(string(out), "1 direct, 0 tcp") {
		t.Errorf("%v: %s", err, out)
	}
}

// An agent takes a namespace over from the broker that exn-run --loopback has started there, unless
// that has rules of its own: a connection stays direct, bytes are right, and a program of another
// namespace is direct to the server, which began before the agent.
func TestRootRunAgentLater(t *testing.T) {
	needRun(t, "ip", "python3", "unshare")
	if !netns.Privileged() {
		t.Skip("needs root")
	}
	bin, err := testlab.Build("exn-tun", "exn-run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	out, err := exec.CommandContext(t.Context(), "unshare", "-nmpf", "--mount-proc", "--kill-child", script(t, "takeover.sh"), bin, script(t, "checked.py")).CombinedOutput()
	if strings.Contains(string(out), "needs BPF and cgroup2") {
		t.Skip(string(out))
	}
	if err != nil || strings.Count(string(out), "1 direct, 0 tcp") != 2 {
		t.Errorf("%v: %s", err, out)
	}
}

package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"exnet/internal/longtest"
	"exnet/internal/netns"
	"exnet/test/testlab"
)

// withAgent runs a script of testdata, whose agent is that of its own namespaces, with a directory
// that has the commands and programs, and returns what it prints.
func withAgent(t *testing.T, name string, programs []string, args ...string) string {
	t.Helper()
	needRun(t, "ip", "python3", "unshare")
	if !netns.Privileged() {
		t.Skip("needs root")
	}
	bin := buildFor(t, "exn-tun", "exn-run")
	if err := testlab.Into(bin, programs...); err != nil {
		t.Fatal(err)
	}
	argv := append([]string{"-nmpf", "--mount-proc", "--kill-child", script(t, name), bin}, args...)
	out, err := exec.CommandContext(t.Context(), "unshare", argv...).CombinedOutput()
	if strings.Contains(string(out), "needs BPF and cgroup2") {
		t.Skip(string(out))
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

// What a user types first, exn-run --explain in a namespace in which nothing has asked for direct
// sockets yet, is direct by the host's agent, as any later program is.
func TestRootRunAgentFirst(t *testing.T) {
	if out := withAgent(t, "agent_first.sh", nil); !strings.Contains(out, "1 direct, 0 tcp") {
		t.Error(out)
	}
}

// An agent takes a namespace over from the broker that exn-run --loopback has started there, unless
// that has rules of its own: a connection stays direct, bytes are right, and a program of another
// namespace is direct to the server, which began before the agent.
func TestRootRunAgentLater(t *testing.T) {
	if out := withAgent(t, "takeover.sh", nil, script(t, "checked.py")); strings.Count(out, "1 direct, 0 tcp") != 2 {
		t.Error(out)
	}
}

// Programs start with what the device plugin gives a container while the agent is away, talk by
// TCP, and are direct when an agent is back. The kubelet has the device all the time.
func TestRootRunAgentAway(t *testing.T) {
	if out := withAgent(t, "agent_away.sh", []string{"./testdata/run/kubelet.go"}, script(t, "checked.py")); !strings.Contains(out, "direct when it is back\nchecked ") {
		t.Error(out)
	}
}

// A node takes the namespace of live connections over from an agent, and the agent from the node,
// which ends as it is asked to or is killed: the connections of programs in C and Go, in that
// namespace and from another one, stay direct, each byte is right, and new ones are direct.
func TestRootRunAgentNode(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	out := withAgent(t, "handover.sh", []string{"./testdata/fabric/echo.go", "./testdata/run/checked.go"}, script(t, "checked.py"))
	if strings.Count(out, "12 direct by") != 5 || strings.Count(out, "checked") != 4 || strings.Contains(out, "cannot serve") {
		t.Error(out)
	}
}

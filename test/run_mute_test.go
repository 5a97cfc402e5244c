package e2e

import (
	"testing"

	"exnet/internal/longtest"
)

// A process that a filter refuses sockets of AF_NETLINK keeps UDP on the kernel, and exn-run says
// why. Its broker, which needs them, is there before.
func TestRootRunMute(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	const port = "8000"
	checkLeaks(t)
	l := newLocal(t, true)
	mute := script(t, "mute.py")
	echo := startIn(t, l.ns, nil, l.exnRun, "--loopback", "--", programPath("python3"), mute, "echo", port)
	ask := startIn(t, l.ns, nil, "python3", mute, "mute", l.exnRun, "--loopback", "--verbose", "--", programPath("python3"), mute, "ask", port)
	ask.says(t, "udp 127.0.0.1:")
	ask.says(t, "-> 127.0.0.1:"+port+": udp: the process may not ask the kernel about sockets (AF_NETLINK), which UDP needs")
	ask.end(t)
	echo.end(t)
}

package e2e

import (
	"strings"
	"testing"

	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// A program that waits on a connection through the fabric, whose link is away, is told by its
// keep-alive, however it waits, what the kernel tells one on TCP.
func TestRootFabricKeepAlive(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	if err := testlab.Into(c.bin, "./testdata/fabric/kept.go"); err != nil {
		t.Fatal(err)
	}
	const addr = "10.2.0.2"
	var direct, kernel []*process
	for _, how := range []string{"recv", "poll", "select", "level", "edge", "nonblocking", "error", "write"} {
		direct = append(direct, c.talkBy("kept.py", addr, how).process)
		kernel = append(kernel, startIn(t, c.spaces[0], nil, "python3", c.script("kept.py"), addr, carriedPort, how))
	}
	for _, how := range []string{"read", "write"} {
		argv := []string{"env", awaitBroker, c.bin + "/kept", addr + ":" + carriedPort, how}
		direct = append(direct, startIn(t, c.spaces[0], nil, append(argv, "direct")...))
		kernel = append(kernel, startIn(t, c.spaces[0], nil, append(argv, "net")...))
	}
	for i := range direct {
		direct[i].says(t, "idle")
		kernel[i].says(t, "idle")
	}
	if n := c.count(0, "relay.connections"); n != uint64(len(direct)) {
		t.Fatalf("%d connections go through the fabric, want %d", n, len(direct))
	}
	c.cable("down")
	for i := range direct {
		want, got := toldLine(kernel[i].wait(t)), toldLine(direct[i].wait(t))
		if !strings.Contains(want, "ETIMEDOUT") {
			t.Errorf("TCP says %q", want)
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c.cable("up")
}

// toldLine is the line in which kept.py says what it was told.
func toldLine(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "was told:") {
			return strings.TrimSpace(line)
		}
	}
	return out
}

package e2e

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// A program that waits on a connection through the fabric, whose link is away, is told by its
// keep-alive, however it waits, what the kernel tells one on TCP.
func TestRootFabricKeepAlive(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3", "ss")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	if err := testlab.Into(c.bin, "./testdata/fabric/kept.go"); err != nil {
		t.Fatal(err)
	}
	const addr = "10.2.0.2"
	in, out, err := os.Pipe() // their standard input, which ends for all at once
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var direct, kernel []*process
	var inputs []io.Closer
	for _, how := range []string{"recv", "poll", "select", "level", "edge", "nonblocking", "error", "write"} {
		k := c.talkBy("kept.py", addr, how)
		inputs = append(inputs, k.in)
		direct = append(direct, k.process)
		kernel = append(kernel, startIn(t, c.spaces[0], in, "python3", c.script("kept.py"), addr, carriedPort, how))
	}
	for _, how := range []string{"read", "write"} {
		argv := []string{"env", awaitBroker, c.bin + "/kept", addr + ":" + carriedPort, how}
		direct = append(direct, startIn(t, c.spaces[0], in, append(argv, "direct")...))
		kernel = append(kernel, startIn(t, c.spaces[0], in, append(argv, "net")...))
	}
	eventually(t, func() error {
		if n := c.count(0, "relay.attached"); n != uint64(len(direct)) {
			return fmt.Errorf("%d connections go through the fabric, want %d", n, len(direct))
		}
		return nil
	})
	for _, end := range append(inputs, out) {
		if err := end.Close(); err != nil {
			t.Error(err)
		}
	}
	for i := range direct {
		direct[i].says(t, "idle")
		kernel[i].says(t, "idle")
	}
	// What the kernel has not had an acknowledgement for it repeats, and sends no keep-alive
	// meanwhile.
	eventually(t, func() error {
		out, err := runIn(t, c.spaces[0], nil, "ss", "-tnH", "state", "established", "dport", "=", ":"+carriedPort)
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) < 2 || f[1] != "0" {
				return fmt.Errorf("not acknowledged: %s", line)
			}
		}
		return err
	})
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

// toldLine is the line in which kept.py says what it was told. The kernel says EHOSTUNREACH in
// place of ETIMEDOUT where the node has told it so meanwhile, which is chance.
func toldLine(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "was told:") {
			return strings.ReplaceAll(strings.TrimSpace(line), "EHOSTUNREACH", "ETIMEDOUT")
		}
	}
	return out
}

package exngo

import (
	"io"
	"testing"

	"exnet/directsockets/broker/client"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// TestErrors has a program print the errors of its calls after a connection's end, which are those
// of the Go release whether the connection was direct or not; the peer of a reader that is blocked
// then reads an end of file.
func TestErrors(t *testing.T) {
	longtest.Skip(t)
	dir := copyTree(t, "errors")
	nothing := func() {}
	want := runErrors(t, buildPlain(t, dir), nothing)
	program := buildProgram(t, dir)
	if got := runErrors(t, program, nothing, "EXNET_LOOPBACK=0"); got != want {
		t.Errorf("on TCP:\n%s\nwant\n%s", got, want)
	}
	s := testlab.StartBroker(t)
	direct := func() { eventuallyDirect(t, s) }
	if got := runErrors(t, program, direct, "EXNET_LOOPBACK=1", client.PathEnv+"="+s.Path()); got != want {
		t.Errorf("direct:\n%s\nwant\n%s", got, want)
	}
}

// runErrors runs testdata/errors, has it close its connection after ready, and returns what it
// prints then.
func runErrors(t *testing.T, program string, ready func(), env ...string) string {
	t.Helper()
	cmd, in, out, stderr := startPiped(t, program, env)
	ready()
	if _, err := in.Write([]byte{'\n'}); err != nil {
		t.Error(err)
	}
	text, err := io.ReadAll(out)
	if err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, stderr)
	}
	return string(text)
}

package exngo

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// TestInherit has a server that has inherited its listener, as after a graceful restart:
// its connections are direct. A connection that it hands on is TCP from there; a server
// that is stopped delays, and one that is killed ends its connection.
func TestInherit(t *testing.T) {
	longtest.Skip(t)
	s := testlab.StartBroker(t)
	cmd := exec.Command(buildProgram(t, copyTree(t, "inherit")))
	cmd.Env = append(os.Environ(), "EXNET_LOOPBACK=1", client.PathEnv+"="+s.Path())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hang := time.AfterFunc(3*testWait, func() { cmd.Process.Kill() })
	defer hang.Stop()
	lines := bufio.NewReader(out)
	for _, word := range []struct{ say, hear string }{{"stop", "stop"}, {"pass", "pass"}, {"kill", "leak"}} {
		eventuallyDirect(t, s)
		if t.Failed() {
			cmd.Process.Kill()
			break
		}
		fmt.Fprintln(in, word.say)
		if line, err := lines.ReadString('\n'); strings.TrimSpace(line) != word.hear {
			rest, _ := io.ReadAll(lines)
			t.Errorf("%s: %q %s, %v", word.say, line, rest, err)
			break
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

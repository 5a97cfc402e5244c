package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Direct sockets are switched off and on while programs exchange data that is checked: connections
// that are direct go back to TCP, new ones stay there while it is off and are direct while it is
// on, and no byte is lost.
func TestRootRunSwitch(t *testing.T) {
	needRun(t, "python3")
	const port = "7391" // which no other test has: all brokers are told
	checkLeaks(t)
	l := newLocal(t, true)
	script, stop := testdata(t, "run/checked.py"), filepath.Join(l.dir, "stop")
	server := l.serve(t, port, "python3", script, "serve", port)
	client := l.start(t, "python3", script, "ask", port, "4", stop)
	exnTun := filepath.Join(buildFor(t, "exn-tun"), "exn-tun")
	say := func(what string) string {
		t.Helper()
		return startIn(t, l.ns, nil, exnTun, "direct", what, "--port", port).wait(t)
	}
	back := 0
	for end := time.Now().Add(hangTime); back == 0 && time.Now().Before(end); { // once they are direct
		for line := range strings.Lines(say("off")) {
			if _, n, ok := strings.Cut(line, ".sock: "); ok {
				n, _, _ := strings.Cut(n, " ")
				k, err := strconv.Atoi(n)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				back += k
			}
		}
		say("on")
	}
	if back == 0 {
		t.Error("no connection went back to TCP")
	}
	for range 20 {
		say("off")
		say("on")
	}
	say("off")
	before := len(l.reports)
	l.run(t, "python3", script, "once", port, "200")
	for _, c := range l.connectionsAfter(t, before) {
		if c.Path != "tcp" || !strings.Contains(c.Choice, "switched off") {
			t.Errorf("a connection made while it is off: %s", c.Choice)
		}
	}
	say("on")
	l.run(t, "python3", script, "once", port, "200")
	if all := l.connectionsAfter(t, before+1); len(all) != 1 || all[0].Path != "direct" {
		t.Errorf("%d connections made after that, or not direct", len(all))
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	client.wait(t)
	server.end(t)
}

package e2e

import (
	"slices"
	"testing"

	"exnet/internal/exnrun"
)

// What exn-run says of a connection that stays on TCP is a fact about it.
func TestRootRunReasons(t *testing.T) {
	needRun(t, "python3")
	const port = "8000"
	for _, tt := range []struct {
		name, mode, choice string
		plain              bool // the client is without exn-run
	}{
		{"no offer", "alone", "tcp: the client has not offered it", true},
		{"another process", "shared", "tcp: another process has the connection, too", false},
		{"standard stream", "stream", "tcp: it is a standard stream of the program", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			l := newLocal(t, true)
			s := l.serve(t, port, "python3", script(t, "reasons.py"), "serve", port, tt.mode)
			client := &local{ns: l.ns, exnRun: l.exnRun, dir: sharedDir(t)}
			if tt.plain {
				client.exnRun = ""
			}
			client.run(t, "python3", script(t, "reasons.py"), "talk", port)
			s.wait(t)
			all := slices.DeleteFunc(l.connections(t), func(c exnrun.Record) bool { return !c.Server })
			if len(all) != 1 || all[0].Choice != tt.choice {
				t.Errorf("the server says %+v, want %q", all, tt.choice)
			}
		})
	}
}

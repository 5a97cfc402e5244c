package daemon

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"exnet/internal/netns/netnstest"
)

// logged is what a node has logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // +checklocks:mu
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A process that has taken the names of the sockets does not keep a node from starting, which says
// so.
func TestRootServiceNamesTaken(t *testing.T) {
	requireTUN(t)
	ns := netnstest.New(t)
	names := []string{portsSocket, portsSocket + "-lab-1", memorySocket, memorySocket + "-lab-1"}
	for _, name := range names {
		if err := ns.Do(func() error {
			ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
			if err == nil {
				t.Cleanup(func() { ln.Close() })
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	var log logged
	d := startWith(t, ns, Config{
		Dir: filepath.Join(t.TempDir(), "lab"), Addrs: prefixes("10.2.0.1/24"), Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, s := range d.services {
		if n := len(s.about().processes); n != 0 {
			t.Errorf("%s: %d sockets", s.about().what, n)
		}
	}
	for i, name := range names {
		want := i % 2 // the first name may be another node's, as this process's user has nodes
		if n := strings.Count(log.String(), "name="+name+" "); n != want {
			t.Errorf("%s: said %d times\n%s", name, n, log.String())
		}
	}
}

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"exnet/fabric/link/ofi"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// cleartextFabric is the name of the fabric: control connections say it in text.
const cleartextFabric = "name-of-the-fabric"

// What docs/security.md and docs/hosts.md say of encryption between hosts holds on the cable: a
// capture has the bytes of programs, over exn0 and of direct sockets by a rule, or none of them.
func TestRootCleartext(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3", "tcpdump")
	for _, c := range []struct {
		name          string
		flags         []string // of both nodes
		plaintext     bool     // no keys
		data, control bool     // are to be read on the cable
	}{
		{name: "keys"},
		{name: "keys, several connections", flags: []string{"--conns", "3"}},
		{name: "keys, links with faults", flags: []string{"--faults", "drop=0.01,seed=1"}},
		{name: "plaintext", plaintext: true, data: true, control: true},
		{name: "keys, libfabric", flags: []string{"--link", "ofi:tcp"}, data: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.flags) > 1 && c.flags[0] == "--link" {
				if err := ofi.Check(t.Context(), "tcp"); errors.Is(err, ofi.ErrMissing) {
					t.Skip(err)
				} else if err != nil {
					t.Fatal(err)
				}
			}
			checkLeaks(t)
			s := newSite(t)
			cable := s.tapCable()
			s.joinMarked(c.plaintext, c.flags)
			over := s.sayMarked("bytes-of-a-program-over-exn0:", false)
			direct := s.sayMarked("bytes-of-a-direct-connection:", true)
			text := cable(over + direct)
			for what, n := range map[string]int{"bytes-of-a-program-over-exn0:": over, "bytes-of-a-direct-connection:": direct} {
				got := bytes.Count(text, []byte(what)) * len(what)
				if !c.data && got != 0 {
					t.Errorf("%d of the bytes %q are on the cable", got, what)
				}
				if c.data && got < n/2 { // some are cut by the ends of packets
					t.Errorf("%d bytes %q are on the cable, %d were sent", got, what, n)
				}
			}
			if got := bytes.Contains(text, []byte(cleartextFabric)); got != c.control {
				t.Errorf("the fabric's name can be read on the cable: %v, want %v", got, c.control)
			}
		})
	}
}

// tapCable captures what passes the cable of host 2. The function that it returns waits until the
// capture has a number of bytes, and returns them.
func (s *site) tapCable() func(least int) []byte {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "cable")
	// In the namespace of the router, as what is on the path.
	p := startIn(s.t, s.router, nil, "tcpdump", "-i", "r2", "-U", "-s", "0", "-B", "65536", "-Z", "root", "-w", file)
	p.says(s.t, "listening on")
	return func(least int) []byte {
		s.t.Helper()
		eventually(s.t, func() error {
			if st, err := os.Stat(file); err != nil || st.Size() < int64(least) {
				return fmt.Errorf("the capture has no %d bytes yet: %v", least, err)
			}
			return nil
		})
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			s.t.Error(err)
		}
		if out := p.wait(s.t); !strings.Contains(out, "\n0 packets dropped by kernel") {
			s.t.Errorf("tcpdump says %s", out)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		return b
	}
}

// joinMarked starts a node on hosts 1 and 2, builds the server, and waits until they are linked.
func (s *site) joinMarked(plaintext bool, flags []string) {
	s.t.Helper()
	if err := testlab.Into(s.bin, "./testdata/fabric/echo.go"); err != nil {
		s.t.Fatal(err)
	}
	if !plaintext {
		s.key("ca", "--fabric", cleartextFabric, "--out", "ca")
	}
	for i := 1; i <= 2; i++ {
		n := strconv.Itoa(i)
		args := []string{
			s.exnTun, "up", "--dir", s.home(i), "--fair", "--fabric", cleartextFabric, "--listen", ":4791",
			"--direct", "fabric:" + webPort, "--addr", "10.2.0." + n + "/24",
		}
		if i == 2 {
			args = append(args, "--join", s.at(1))
		}
		if plaintext {
			args = append(args, "--plaintext", "--node", n)
		} else {
			s.key("node", "--fabric", cleartextFabric, "--node", n, "--ca", "ca", "--out", "node"+n)
			args = append(args, "--key", filepath.Join(s.dir, "node"+n+".key"), "--trust", filepath.Join(s.dir, "ca.crt"))
		}
		startIn(s.t, s.hosts[i-1], nil, append(args, flags...)...).says(s.t, "is up")
	}
	s.linked(true, 1, 2)
}

// sayMarked has a program on host 1 send a text to a server on host 2, and returns how many bytes
// went, either over exn0 by TCP or through the fabric by a direct connection.
func (s *site) sayMarked(text string, direct bool) int {
	s.t.Helper()
	const most = 256 << 10
	port, argv := "9000", []string(nil)
	if direct {
		exnRun, err := buildExnRun()
		if err != nil {
			s.t.Fatal(err)
		}
		port, argv = webPort, []string{"env", awaitBroker, exnRun, "--"}
	}
	server := startIn(s.t, s.hosts[1], nil, filepath.Join(s.bin, "echo"), ":"+port)
	server.says(s.t, "listening")
	in, more, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer in.Close()
	defer more.Close()
	before := s.count(1, "relay.bytes_sent")
	client := startIn(s.t, s.hosts[0], in, append(argv, "python3", "testdata/fabric/marked.py", "10.2.0.2", port, text)...)
	went := func() (n int) {
		out := client.out.String()
		if i := strings.LastIndex(out, "went "); i >= 0 {
			_, _ = fmt.Sscanf(out[i:], "went %d", &n) // or it has not said all of it
		}
		return n
	}
	relayed := func() int { return int(s.count(1, "relay.bytes_sent") - before) }
	client.until(s.t, "bytes", func() bool { return direct && relayed() >= most || !direct && went() >= most })
	if err := more.Close(); err != nil {
		s.t.Error(err)
	}
	client.wait(s.t)
	server.stop()
	if n := relayed(); !direct && n != 0 {
		s.t.Errorf("%d bytes over exn0 went through the fabric", n)
	}
	if direct {
		return relayed()
	}
	return went()
}

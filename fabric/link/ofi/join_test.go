package ofi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/ofi"
	"exnet/fabric/link/stream"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
)

// joinBoth has two nodes join as their configurations say, and returns the errors.
func joinBoth(t *testing.T, a, b ofi.Config) [2]error {
	t.Helper()
	x, y := fabrictest.TCP(t)
	ends := [2]net.Conn{x, y}
	var errs [2]error
	var both sync.WaitGroup
	for i, cfg := range [2]ofi.Config{a, b} {
		both.Go(func() {
			defer ends[i].Close()
			var e *ofi.Engine
			if e, errs[i] = ofi.Join(t.Context(), ends[i], cfg); errs[i] == nil {
				e.Close()
			}
		})
	}
	both.Wait()
	return errs
}

// Who does not agree gets a line that says so, and no link.
func TestMismatch(t *testing.T) {
	helper := needHelper(t)
	good := func(self, peer fabric.NodeID, provider string) ofi.Config {
		return ofi.Config{Self: self, Peer: peer, Provider: provider, Helper: helper, Timeout: time.Minute}
	}
	for _, tt := range []struct {
		name string
		a, b ofi.Config
		want error
		text string
	}{
		{"the same", good(1, 2, "tcp"), good(2, 1, "tcp"), nil, ""},
		{"one has no wish", good(1, 2, ""), good(2, 1, "tcp"), nil, ""},
		{"nobody has", good(1, 2, ""), good(2, 1, ""), nil, ""},
		{"providers", good(1, 2, "tcp"), good(2, 1, "verbs"), ofi.ErrMismatch, "ofi:"},
		{"nodes", good(1, 2, "tcp"), good(2, 3, "tcp"), ofi.ErrMismatch, "the peer is node"},
		{"no such provider", good(1, 2, "nonsense"), good(2, 1, ""), ofi.ErrProvider, "FI_EP_MSG"},
		{"unusable", good(1, 2, "udp"), good(2, 1, "tcp"), nil, ""}, // see below
	} {
		t.Run(tt.name, func(t *testing.T) {
			errs := joinBoth(t, tt.a, tt.b)
			if tt.name == "unusable" {
				if !errors.Is(errs[0], ofi.ErrRefused) || !errors.Is(errs[1], ofi.ErrMismatch) {
					t.Error(errs)
				}
				return
			}
			for _, err := range errs {
				if !errors.Is(err, tt.want) || err != nil && (!strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "\n")) {
					t.Errorf("%v, want %v", err, tt.want)
				}
			}
		})
	}
}

// A peer without an engine, and one that is no node.
func TestOtherPeers(t *testing.T) {
	helper := needHelper(t)
	for _, said := range []string{"exnetstr and more", "SSH-2.0-OpenSSH_9.2", "", "exnetofi", "exnetofi" + strings.Repeat("\xff", 248)} {
		x, y := fabrictest.TCP(t)
		go func() {
			_, _ = y.Write([]byte(said))
			_ = y.(*net.TCPConn).CloseWrite()
		}()
		if _, err := ofi.Join(t.Context(), x, ofi.Config{Self: 1, Peer: 2, Helper: helper, Timeout: time.Minute}); !errors.Is(err, ofi.ErrMismatch) {
			t.Errorf("%q: %v", said, err)
		}
		x.Close()
		y.Close()
	}
	// And what a stream link says to one with an engine.
	x, y := fabrictest.TCP(t)
	defer y.Close()
	go func() { _, _ = ofi.Join(context.Background(), y, ofi.Config{Self: 2, Peer: 1, Helper: helper}) }()
	if _, err := stream.New(fabrictest.NewNIC(t, 1), stream.Config{Peer: 2, Conns: []net.Conn{x}, HelloTimeout: time.Minute}); !errors.Is(err, stream.ErrHello) || !strings.Contains(err.Error(), "--link ofi") {
		t.Errorf("a stream link: %v", err)
	}
}

// joined returns two NICs that are linked by libfabric.
func joined(t *testing.T, x, y *nic.NIC) (a, b *ofi.Engine, lx, ly *stream.Link) {
	t.Helper()
	a, b = fabrictest.JoinOFI(t, x.ID(), y.ID(), needHelper(t))
	if a == nil || b == nil {
		t.FailNow()
	}
	lx, ly = fabrictest.JoinStream(t, x, y, fabrictest.StreamConfig{Conns: 1, Link: stream.Config{Engine: a}, PeerEngine: b}, nil)
	return a, b, lx, ly
}

// A helper that is killed costs its link, on both nodes, and nothing else: a new one comes up.
func TestHelperKilled(t *testing.T) {
	x, y := fabrictest.NewNIC(t, 1), fabrictest.NewNIC(t, 2)
	from, to := fabrictest.OpenVELO(t, x, 1, velo.Config{}), fabrictest.OpenVELO(t, y, 1, velo.Config{})
	for range 2 {
		a, _, lx, ly := joined(t, x, y)
		if lx.Name() != "ofi:tcp" {
			t.Errorf("the link is called %q", lx.Name())
		}
		fabrictest.Eventually(t, "the mailbox is known", func() bool { return from.Credits(2, 1) > 0 })
		if err := from.Send(velo.Descriptor{Dst: 2, VPID: 1}, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		fabrictest.Eventually(t, "the message", func() bool {
			_, p, ok := to.Peek()
			return ok && bytes.Equal(p, []byte("hello"))
		})
		to.Advance()
		if err := syscall.Kill(a.Pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-lx.Done()
		<-ly.Done()
		if err := lx.Err(); !errors.Is(err, ofi.ErrHelper) || !errors.Is(err, fabric.ErrPeerDown) || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the node of the helper says %v", err)
		}
		if err := ly.Err(); !errors.Is(err, ofi.ErrProvider) || !errors.Is(err, fabric.ErrPeerDown) {
			t.Errorf("its peer says %v", err)
		}
	}
}

// A link on which nothing moves costs nothing: its helper does not wake.
func TestIdle(t *testing.T) {
	a, b := fabrictest.JoinOFI(t, 1, 2, needHelper(t))
	if a == nil || b == nil {
		t.FailNow()
	}
	defer a.Close()
	defer b.Close()
	for _, e := range []*ofi.Engine{a, b} {
		before, ticks := e.Wakes(), cpuTicks(t, e.Pid())
		time.Sleep(time.Second)
		if n, c := e.Wakes()-before, cpuTicks(t, e.Pid())-ticks; n > 3 || c > 1 { // the last of the handshake may still come
			t.Errorf("a helper with nothing to do woke %d times and took %d ticks", n, c)
		}
	}
}

// cpuTicks is how much time a process has had, in hundredths of a second.
func cpuTicks(t *testing.T, pid int) (n int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	for _, f := range fields[11:13] { // utime, stime
		k, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	return n
}

// script returns a helper that is a shell script, with its socket as standard input and
// output.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "helper")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec <&3 >&3\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// What a helper says is checked, and ends the attempt with one line.
func TestHostileHelper(t *testing.T) {
	const good = "echo info 65553 tcp 7667712; read order"
	for _, tt := range []struct {
		name, text string
		want       error
		says       string
	}{
		{"provider net", "echo info 65553 net 7667712; exec sleep 60", ofi.ErrRefused, "net is not supported"},
		{"provider udp, layered", "echo 'info 65553 UDP;ofi_rxd 7667712'; exec sleep 60", ofi.ErrRefused, "udp is not supported"},
		{"1.18.0", "echo info 65554 tcp 7733248; exec sleep 60", ofi.ErrRefused, "1.18.0 spins"},
		{"down", "echo down no way by FI_EP_MSG", ofi.ErrProvider, "no way by FI_EP_MSG"},
		{"no library", "echo exn-ofi: error while loading shared libraries: libfabric.so.1: cannot open >&2; exit 127", ofi.ErrMissing, "libfabric.so.1"},
		{"dies", "exit 3", ofi.ErrHelper, "exit status 3"},
		{"killed", "kill -9 $$", ofi.ErrHelper, "killed"},
		{"noise", "head -c 100000 /dev/zero", ofi.ErrHelper, "256 bytes"},
		{"control characters", `printf 'inf\033[2J\n'; exec sleep 60`, ofi.ErrHelper, "inf?[2J"},
		{"no numbers", "echo info x y z; exec sleep 60", ofi.ErrHelper, "x y z"},
		{"a port too high", good + "; echo port 65536; exec sleep 60", ofi.ErrHelper, "65536"},
		{"port 0", good + "; echo port 0; exec sleep 60", ofi.ErrHelper, "port 0"},
		{"down with a port", good + "; echo down fi_listen: Permission denied", ofi.ErrProvider, "Permission denied"},
		{"hangs up", good + "; exec <&- >&- 3>&-; exec sleep 60", ofi.ErrHelper, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := ofi.Config{Self: 1, Peer: 2, Provider: "tcp", Helper: script(t, tt.text), Timeout: time.Minute}
			other := cfg
			other.Self, other.Peer = 2, 1
			errs := joinBoth(t, cfg, other)
			if err := errs[0]; !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) || strings.ContainsAny(err.Error(), "\n\033") {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if err := errs[1]; err == nil || strings.ContainsAny(err.Error(), "\n\033") {
				t.Errorf("the peer: %v", err)
			}
		})
	}
}

// A helper that says nothing is given up, and ended.
func TestSilentHelper(t *testing.T) {
	cfg := ofi.Config{Self: 1, Peer: 2, Provider: "tcp", Helper: script(t, "exec sleep 600"), Timeout: 200 * time.Millisecond}
	other := cfg
	other.Self, other.Peer = 2, 1
	for _, err := range joinBoth(t, cfg, other) {
		if err == nil {
			t.Error("joined nobody")
		}
	}
}

// Without a compiler, or libfabric's headers, one line says what to install.
func TestMissing(t *testing.T) {
	headers := filepath.Join(t.TempDir(), "cc")
	text := "#!/bin/sh\necho 'helper.c:26:10: fatal error: rdma/fabric.h: No such file or directory' >&2\nexit 1\n"
	if err := os.WriteFile(headers, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	for cc, says := range map[string]string{"exnet-no-such-compiler": "no C compiler", headers: "libfabric-dev"} {
		t.Setenv("CC", cc)
		if err := ofi.Check(t.Context(), "tcp"); !errors.Is(err, ofi.ErrMissing) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", cc, err)
		}
	}
}

func TestCheck(t *testing.T) {
	needHelper(t)
	for name, want := range map[string]error{
		"": nil, "tcp": nil, "nonsense": ofi.ErrProvider, "net": ofi.ErrRefused, "sockets": ofi.ErrRefused, "UDP;ofi_rxd": ofi.ErrRefused,
		"../x": fabric.ErrInvalid, strings.Repeat("x", 40): fabric.ErrInvalid,
	} {
		if err := ofi.Check(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}

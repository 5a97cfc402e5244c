package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/shm"
	"exnet/fabric/link/wire"
	"exnet/fabric/nic"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

// counters adds up the counters of all peers by their names, of the layers that begin
// with prefix.
func counters(t *testing.T, d *Daemon, prefix string) map[string]uint64 {
	t.Helper()
	s, err := d.Status()
	if err != nil {
		t.Fatal(err)
	}
	sum := make(map[string]uint64)
	for _, c := range s.Counters {
		if rest, ok := strings.CutPrefix(c.Name, prefix); ok {
			_, name, _ := strings.Cut(rest, ".")
			sum[name] += c.Value
		}
	}
	return sum
}

// transfer sends random bytes over TCP from one namespace to an address of another, and
// compares the sums.
func transfer(t *testing.T, from, to *netns.NS, addr string, size int) {
	t.Helper()
	var ln net.Listener
	if err := to.Do(func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(addr, "0"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	data := make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(data) // it never fails
	got := make(chan []byte, 1)
	go func() {
		defer close(got)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, c); err == nil {
			got <- sum.Sum(nil)
		}
	}()
	var c net.Conn
	if err := from.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", ln.Addr().String(), 30*time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	_, err := c.Write(data)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(<-got, want[:]) {
		t.Errorf("what came is not the %d bytes that were sent", size)
	}
}

// One of three nodes has bad links: they are its own to both, and the link between the
// two others is memory as before. Programs find no difference.
func TestRootFaults(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	var nodes []*running
	for i, addr := range []string{"10.2.0.1/24", "10.2.0.2/24", "10.2.0.3/24"} {
		cfg := Config{Dir: dir, Addrs: prefixes(addr)}
		if i == 1 { // higher than one, lower than the other
			cfg.Faults = &wire.Faults{Seed: 1, Drop: 0.02, Corrupt: 0.01, Duplicate: 0.01, Reorder: 0.01}
		}
		nodes = append(nodes, startWith(t, netnstest.New(t), cfg))
	}
	for _, to := range []int{0, 2} {
		addr := []string{"10.2.0.1", "", "10.2.0.3"}[to]
		eventually(t, "ping "+addr, func() bool { _, err := ping(nodes[1].ns, addr); return err == nil })
		transfer(t, nodes[1].ns, nodes[to].ns, addr, 1<<20)
		transfer(t, nodes[to].ns, nodes[1].ns, "10.2.0.2", 1<<20)
	}
	transfer(t, nodes[0].ns, nodes[2].ns, "10.2.0.3", 1<<20)
	for i, n := range nodes {
		w := counters(t, n.Daemon, "wire.")
		t.Log(w)
		want := []string{"packets", "received", "crc_errors", "out_of_order"} // what comes from it is bad
		if i == 1 {
			want = []string{"packets", "received", "retransmitted", "replays"} // it makes up for it
		}
		for _, name := range want {
			if w[name] == 0 {
				t.Errorf("node %d: %s: 0", 1+i, name)
			}
		}
		if i == 1 && w["crc_errors"] != 0 || w["downs"] != 0 {
			t.Errorf("node %d: %v", 1+i, w)
		}
		for _, p := range n.member.Peers() {
			if _, plain := p.Link.(*shm.Link); plain != (i != 1 && p.Node != 2) {
				t.Errorf("node %d to %d: %T", 1+i, p.Node, p.Link)
			}
		}
	}
}

// A link that is cut is found down and made again, and so it is counted.
func TestRootFaultsDown(t *testing.T) {
	netnstest.CheckFDs(t)
	requireTUN(t)
	dir := filepath.Join(t.TempDir(), "lab")
	a := startWith(t, netnstest.New(t), Config{Dir: dir, Addrs: prefixes("10.2.0.1/24"), Faults: &wire.Faults{Drop: 1}})
	startWith(t, netnstest.New(t), Config{Dir: dir, Addrs: prefixes("10.2.0.2/24")})
	eventually(t, "linked", func() bool { s, err := a.Status(); return err == nil && len(s.Peers) == 1 && s.Peers[0].State == "up" })
	if out, err := ping(a.ns, "10.2.0.2"); err == nil {
		t.Errorf("an answer over a link that loses everything\n%s", out)
	}
	eventually(t, "down", func() bool { w := counters(t, a.Daemon, "wire."); return w["downs"] > 0 && w["timeouts"] > 0 })
	eventually(t, "linked again", func() bool { p := a.member.Peers(); return len(p) == 1 && p[0].Links > 1 })
	if w := counters(t, a.Daemon, "wire."); w["downs"] == 0 {
		t.Errorf("forgotten: %v", w)
	}
	s, err := a.Status()
	if err != nil || s.Faults == nil || *s.Faults != "drop=1" {
		t.Errorf("%v, %v", s.Faults, err)
	}
}

// A node that knows of no such links gives one clear line.
func TestFaultsOtherKind(t *testing.T) {
	d := &Daemon{cfg: Config{Faults: new(wire.Faults)}}
	var err error
	if d.nic, err = nic.New(nic.Config{Node: 1}); err != nil {
		t.Fatal(err)
	}
	defer d.nic.Close()
	other, err := nic.New(nic.Config{Node: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan error)
	go func() {
		c, err := ln.AcceptUnix()
		if err == nil {
			_, err = shm.Connect(other, c, shm.Config{})
		}
		done <- err
	}()
	var dialer net.Dialer
	c, err := dialer.DialContext(context.Background(), "unixpacket", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.overSocket(c.(*net.UnixConn), fabric.NodeID(2)); !errors.Is(err, wire.ErrHello) || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, shm.ErrHello) {
		t.Error(err)
	}
}

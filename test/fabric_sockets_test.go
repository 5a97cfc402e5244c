package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/longtest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/node/hostnet"
	"exnet/test/testlab"
)

// carried are two nodes, with a program in the namespace of each, whose direct sockets go
// through the fabric: a Go server behind node 2, and a client under exn-run behind node 1.
type carried struct {
	t      *testing.T
	bin    string // with exn-tun, exn-run and the server
	dirs   [2]string
	spaces [2]*netns.NS
	nodes  [2]*process
	args   [2][]string // what starts them
	server *process
	env    []string // of a client, NAME=VALUE
	run    []string // options of its exn-run
}

const carriedPort = "7000"

var hostsTLS = flag.Bool("hosts-tls", false, "nodes of two hosts authenticate each other, and link by TLS")

// newCarried starts the nodes, on one host or on two that share a veth only. flags are those
// of node 1.
func newCarried(t *testing.T, hosts bool, flags ...string) *carried {
	t.Helper()
	return newCarriedOn(t, hosts, nil, flags...)
}

// newCarriedOn is newCarried, with flags of both nodes.
func newCarriedOn(t *testing.T, hosts bool, both []string, flags ...string) *carried {
	t.Helper()
	c := &carried{t: t, bin: t.TempDir()}
	if err := testlab.Into(c.bin, "exnet/cmd/exn-tun", "./testdata/fabric/echo.go"); err != nil {
		t.Fatal(err)
	}
	shared := t.TempDir()
	for i := range c.dirs {
		c.dirs[i], c.spaces[i] = shared, netnstest.New(t)
		if out, err := runIn(t, c.spaces[i], nil, "ip", "link", "set", "lo", "up"); err != nil { // Go looks there whether IPv6 works
			t.Fatalf("%v: %s", err, out)
		}
		if hosts {
			c.dirs[i] = t.TempDir()
		}
	}
	end := func(i int) hostnet.VethEnd {
		a := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(1 + i)}), 24)
		return hostnet.VethEnd{NS: c.spaces[i], Name: "eth0", Config: hostnet.LinkConfig{MTU: 1500, Addrs: []netip.Prefix{a}}}
	}
	if hosts {
		if err := hostnet.CreateVeth(end(0), end(1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.nodes {
		n := strconv.Itoa(1 + i)
		args := []string{c.bin + "/exn-tun", "up", "--fair", "--dir", c.dirs[i], "--node", n, "--addr", "10.2.0." + n + "/24", "--addr6", "fd00:10:2::" + n + "/64"}
		args = append(args, both...)
		if hosts {
			args = append(append(args, "--listen", ":4791"), c.security(shared, n)...)
		}
		if hosts && i == 1 {
			args = append(args, "--join", "10.9.0.1")
		}
		if i == 0 {
			args = append(args, flags...)
		}
		c.args[i] = args
		c.up(i)
	}
	c.linked()
	return c
}

// security returns the flags of a node about who may link to it, for which its keys are in dir.
func (c *carried) security(dir, node string) []string {
	c.t.Helper()
	if !*hostsTLS {
		return []string{"--plaintext"}
	}
	for _, args := range [][]string{{"ca", "--out", "ca"}, {"node", "--node", node, "--ca", "ca", "--out", "node" + node}} {
		if _, err := os.Stat(filepath.Join(dir, args[len(args)-1]+".key")); err == nil {
			continue
		}
		cmd := exec.CommandContext(c.t.Context(), c.bin+"/exn-tun", append([]string{"key"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Fatalf("key %v: %v\n%s", args, err, out)
		}
	}
	return []string{"--key", filepath.Join(dir, "node"+node+".key"), "--trust", filepath.Join(dir, "ca.crt")}
}

// up starts a node.
func (c *carried) up(i int) {
	c.t.Helper()
	c.nodes[i] = startIn(c.t, c.spaces[i], nil, c.args[i]...)
	c.nodes[i].says(c.t, "is up")
}

// linked waits until both nodes are.
func (c *carried) linked() {
	c.t.Helper()
	eventually(c.t, func() error {
		for i := range c.nodes {
			if s := c.status(i); len(s.Peers) != 1 || s.Peers[0].State != "up" {
				return fmt.Errorf("node %d: %+v", 1+i, s.Peers)
			}
		}
		return nil
	})
}

// serve starts the server, with variables NAME=VALUE.
func (c *carried) serve(env ...string) {
	c.t.Helper()
	argv := append(append([]string{"env"}, env...), c.bin+"/echo", ":"+carriedPort)
	c.server = startIn(c.t, c.spaces[1], nil, argv...)
	c.server.says(c.t, "listening")
}

// tun asks a node by exn-tun.
func (c *carried) tun(i int, v any, args ...string) {
	c.t.Helper()
	askNode(c.t, v, c.bin+"/exn-tun", append(args, "--dir", c.dirs[i], "--json")...)
}

// askNode reads what a command of exn-tun prints as JSON. On a busy machine a node may not answer
// in the time that exn-tun waits: it is asked again.
func askNode(t *testing.T, v any, exnTun string, args ...string) {
	t.Helper()
	if err := testlab.Await(func() error {
		var stderr strings.Builder
		cmd := exec.Command(exnTun, args...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, v)
		}
		if err != nil {
			err = fmt.Errorf("%v: %w\n%s%s", args, err, out, stderr.String())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func (c *carried) status(i int) control.Status {
	c.t.Helper()
	var all []control.Status
	c.tun(i, &all, "status")
	for _, s := range all {
		if s.Node == 1+i {
			return s
		}
	}
	c.t.Fatalf("node %d is not there: %d nodes are", 1+i, len(all))
	return control.Status{}
}

// count is a counter of a node.
func (c *carried) count(i int, name string) uint64 {
	c.t.Helper()
	for _, n := range c.status(i).Counters {
		if n.Name == name {
			return n.Value
		}
	}
	c.t.Fatalf("no counter %s", name)
	return 0
}

// path waits until a node says by what the only connection of its programs goes.
func (c *carried) path(i int, want string) {
	c.t.Helper()
	eventually(c.t, func() error {
		var all []control.Sockets
		c.tun(i, &all, "status", "--sockets")
		for _, s := range all {
			if s.Node == 1+i && (len(s.Connections) != 1 || s.Connections[0].Path != want) {
				return fmt.Errorf("%+v, want %s", s.Connections, want)
			}
		}
		return nil
	})
}

// talker is a client.
type talker struct {
	*process
	in io.Closer
}

// went is how many bytes the client says that it has sent and got back.
func (k *talker) went() (n int) {
	out := k.out.String()
	if i := strings.LastIndex(out, "went "); i >= 0 {
		_, _ = fmt.Sscanf(out[i:], "went %d", &n) // or it has not said all of it
	}
	return n
}

// talk starts a client under exn-run, with arguments.
func (c *carried) talk(addr string, args ...string) *talker {
	c.t.Helper()
	return c.talkBy("client.py", addr, args...)
}

// script is the path of a client.
func (c *carried) script(name string) string {
	c.t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata/fabric", name))
	if err != nil {
		c.t.Fatal(err)
	}
	return path
}

// talkBy starts the client that the script is under exn-run, with arguments.
func (c *carried) talkBy(name, addr string, args ...string) *talker {
	c.t.Helper()
	exnRun, err := buildExnRun()
	if err != nil {
		c.t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { in.Close(); out.Close() })
	argv := append(append([]string{"env", awaitBroker}, c.env...), exnRun, "--explain")
	argv = append(argv, c.run...)
	if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" {
		argv = append(argv, "--library", library)
	}
	argv = append(argv, "--")
	return &talker{startIn(c.t, c.spaces[0], in, append(append(argv, "python3", c.script(name), addr, carriedPort), args...)...), out}
}

// through waits until n more bytes have gone through the fabric each way.
func (c *carried) through(k *talker, n uint64) {
	c.t.Helper()
	began, sent, received := time.Now(), c.count(0, "relay.bytes_sent")+n, c.count(0, "relay.bytes_received")+n
	k.until(c.t, "bytes through the fabric", func() bool {
		return c.count(0, "relay.bytes_sent") >= sent && c.count(0, "relay.bytes_received") >= received
	})
	c.t.Logf("%d bytes after %v", n, time.Since(began).Round(time.Millisecond))
}

// clean waits until no node has anything of a connection.
func (c *carried) clean(nodes ...int) {
	c.t.Helper()
	eventually(c.t, func() error {
		for _, i := range nodes {
			if n := c.count(i, "relay.connections"); n != 0 {
				return fmt.Errorf("node %d has %d connections", 1+i, n)
			}
		}
		return nil
	})
}

// Direct sockets go through the fabric where a rule asks for it, on one host and between two:
// unchanged programs, byte for byte, in the NIC's counters; they end as TCP does when a
// program, a node or a link ends.
func TestRootFabricSockets(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	for _, hosts := range []bool{false, true} {
		t.Run(map[bool]string{false: "host", true: "hosts"}[hosts], func(t *testing.T) {
			checkLeaks(t)
			c := newCarried(t, hosts, "--direct", "fabric:"+carriedPort)
			c.serve()
			for _, addr := range []string{"10.2.0.2", "fd00:10:2::2"} {
				c.whole(addr)
			}
			c.killed(true)
			c.killed(false)
			c.serve()
			gone := 1
			if hosts {
				gone = 0
			}
			c.nodeGone(gone, hosts)
		})
	}
}

// Connections go on when the link that they go through was away, each byte once and in order, and
// none gets a reset.
func TestRootFabricCuts(t *testing.T) {
	longtest.Skip(t) // a node takes a while to notice that its cable is gone
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarried(t, true, "--direct", "fabric:"+carriedPort)
	c.serve()
	c.env = []string{"EXN_SIZES=1,64,4096,200000"}
	talkers := make([]*talker, 4)
	for i := range talkers {
		k := c.talk("10.2.0.2")
		c.through(k, 1<<20)
		k.until(t, "bytes", func() bool { return k.went() > 1<<20 || ended(k) })
		talkers[i] = k
	}
	for range 2 {
		c.cable("down")
		c.parted()
		var went []int
		for _, k := range talkers {
			went = append(went, k.went())
		}
		c.cable("up")
		for i, k := range talkers {
			k.until(t, "more bytes, or the end", func() bool { return k.went() > went[i]+1<<20 || ended(k) })
		}
	}
	for i, k := range talkers {
		_ = k.in.Close() // it may have ended
		if out := k.wait(t); !strings.Contains(out, "\nok ") {
			t.Errorf("client %d says %s", i, out)
		}
	}
	if resumed, lost := c.count(0, "relay.resumed"), c.count(0, "relay.lost"); resumed == 0 || lost != 0 {
		t.Errorf("%d times that a connection went on, %d were reset", resumed, lost)
	}
}

// What direct sockets move through shared memory is accounted to the pair of nodes, also
// when the programs have ended: each end tells of what it sent and got.
func TestRootSharedSockets(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "python3")
	checkLeaks(t)
	c := newCarried(t, false)
	c.serve()
	k := c.talk("10.2.0.2")
	const most = 1 << 20
	k.until(t, "bytes in shared memory", func() bool { return c.shared(0).Sent.Bytes >= most && c.shared(1).Sent.Bytes >= most })
	c.path(0, "shm")
	if err := k.in.Close(); err != nil {
		t.Error(err)
	}
	if out := k.wait(t); !strings.Contains(out, "direct: both ends share memory") {
		t.Errorf("exn-run explains %s", out)
	}
	c.server.says(t, "<nil>")
	eventually(t, func() error { // the brokers learn that the programs have ended
		client, server := c.shared(0), c.shared(1)
		if client.Sent != server.Received || client.Received != server.Sent || client.Sent.Messages == 0 || client.Sent.Bytes < most {
			return fmt.Errorf("the client's node says %+v, the server's %+v", client, server)
		}
		return nil
	})
	if n := c.count(0, "relay.bytes_sent"); n != 0 {
		t.Errorf("%d bytes went through the fabric", n)
	}
}

// shared is what a node says that went to and from the other one through shared memory.
func (c *carried) shared(i int) (total connstats.Total) {
	c.t.Helper()
	for _, s := range c.status(i).Shared {
		if s.Node == 2-i {
			total = s.Total
		}
	}
	return total
}

// whole is a connection from its beginning to its end.
func (c *carried) whole(addr string) {
	velo, rma := c.count(0, "velo.sent"), c.count(0, "rma.put_bytes")
	k := c.talk(addr)
	c.through(k, 4<<20)
	c.path(0, "fabric")
	c.path(1, "fabric")
	if v, r := c.count(0, "velo.sent")-velo, c.count(0, "rma.put_bytes")-rma; v < 40 || r < 2<<20 {
		c.t.Errorf("%d VELO messages and %d bytes of PUTs for 4 MB", v, r)
	}
	if err := k.in.Close(); err != nil {
		c.t.Error(err)
	}
	if out := k.wait(c.t); !strings.Contains(out, "\nok ") {
		c.t.Errorf("the client says %s", out)
	}
	c.server.says(c.t, "<nil>")
	c.clean(0, 1)
}

// killed is a connection of which a program is killed: that ends it for the other, which is
// told as TCP tells.
func (c *carried) killed(client bool) {
	k := c.talk("10.2.0.2")
	c.through(k, 1<<20)
	if client {
		before := strings.Count(c.server.out.String(), "ended")
		k.stop()
		c.server.until(c.t, "end", func() bool { return strings.Count(c.server.out.String(), "ended") > before })
	} else {
		c.server.stop()
		k.says(c.t, "broken: ")
	}
	c.clean(0, 1)
}

// nodeGone is a connection of which a node is killed: both programs get an error, that behind it by
// its doorbell, which ends without a word, and the other one by its node. That of another host may
// be cut off only, until it is back, and has no such connection.
func (c *carried) nodeGone(gone int, back bool) {
	k := c.talk("10.2.0.2")
	c.through(k, 1<<20)
	c.nodes[gone].stop()
	if back {
		c.up(gone)
	}
	c.server.says(c.t, "ended")
	k.says(c.t, "broken: ")
	if out := c.server.out.String(); !strings.Contains(out, "connection reset") {
		c.t.Errorf("the server is told %s", out)
	}
	if out := k.out.String(); !strings.Contains(out, "reset") {
		c.t.Errorf("the client is told %s", out)
	}
	c.clean(1 - gone)
	c.nodes[1-gone].terminate(c.t)
}

// captured is how many bytes a capture has of what direct sockets have sent through the fabric;
// each is where the one before ends.
func captured(t *testing.T, file string) (n uint64) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var next uint32
	for {
		data, info, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if in, err := r.Interface(info.InterfaceIndex); err != nil || !strings.HasSuffix(in.Name, "-direct") || opts.Flags.Direction != pcapgo.NgEpbFlagDirectionOutbound {
			continue
		}
		tcp, ok := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default).TransportLayer().(*layers.TCP)
		if !ok {
			t.Fatalf("%x is no TCP", data)
		}
		if next != 0 && tcp.Seq != next {
			t.Errorf("byte %d after %d", tcp.Seq, next)
		}
		next = tcp.Seq + uint32(len(tcp.Payload))
		n += uint64(len(tcp.Payload))
	}
}

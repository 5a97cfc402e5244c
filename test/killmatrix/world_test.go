package killmatrix

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	brokerclient "exnet/directsockets/broker/client"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/node/hostnet"
	"exnet/test/testlab"
	"exnet/test/testlab/testnode"
)

const (
	ifname   = "exn0"
	hostPort = 4791 // at which a daemon listens for those of other hosts
)

// world is where the cells of one path happen: three nodes, A with the client, B with
// the server and C beside them, each in a namespace; or one namespace with a broker.
type world struct {
	path    path
	spaces  []*netns.NS
	dirs    []string   // of the fabric, by node - 1; nil: there is none
	daemons []*process // by node - 1
	broker  *remote    // of the path "embedded"; else nil
	pid     int        // of the broker of a world without a fabric

	client, server *remote
	others         []*remote // bystanders: one for each node, or two
	beside         []*bystander
	usual          map[string]int // descriptors of each process when nothing happens
	lastID         int
	pulse          *pulse
}

// bystander is a connection that has nothing to do with the cell.
type bystander struct {
	name   string
	a, b   int // index of others
	aID    int
	bID    int
	kind   string
	stalls map[victim]bool // who carries its packets
}

// newWorld starts what a path needs. It goes when the test ends.
func newWorld(t *testing.T, p path) *world {
	t.Helper()
	netnstest.CheckFDs(t)
	w := &world{path: p, usual: make(map[string]int), pulse: newPulse(t)}
	n := 1
	if p.fabric {
		n = 3
	}
	shared := t.TempDir()
	for i := range n {
		w.spaces = append(w.spaces, testlab.LoopbackNS(t))
		switch {
		case p.relay:
			w.dirs = append(w.dirs, t.TempDir())
			if err := w.cables(i); err != nil {
				t.Fatal(err)
			}
		case p.fabric:
			w.dirs = append(w.dirs, shared)
		}
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// cables joins the host of a node with those of the nodes before it.
func (w *world) cables(i int) error {
	end := func(at, to int) hostnet.VethEnd {
		a := netip.PrefixFrom(cable(to, at), 24)
		return hostnet.VethEnd{NS: w.spaces[at], Name: fmt.Sprint("to", to+1), Config: hostnet.LinkConfig{MTU: 1500, Addrs: []netip.Prefix{a}}}
	}
	for j := range i {
		if err := hostnet.CreateVeth(end(i, j), end(j, i)); err != nil {
			return err
		}
	}
	return nil
}

// cable is the address by which one node's host reaches that of another node.
func cable(from, to int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 9, byte(10*min(from, to) + max(from, to)), byte(1 + to)})
}

func (w *world) start() error {
	if w.path.fabric {
		w.daemons = make([]*process, len(w.spaces))
		for i := range w.daemons {
			if err := w.startDaemon(i); err != nil {
				return err
			}
		}
		if err := w.linked(); err != nil {
			return err
		}
	}
	if err := w.startBroker(); err != nil {
		return err
	}
	if err := w.startPeers(); err != nil {
		return err
	}
	for i := range max(2, len(w.spaces)) {
		p, err := startPeer(w.spaces[min(i, len(w.spaces)-1)], "bystander "+string(rune('A'+i)), nil)
		if err != nil {
			return err
		}
		w.others = append(w.others, p)
	}
	w.beside = []*bystander{
		{name: "direct", a: 0, b: 1, kind: "direct"},
		{name: "tcp", a: 0, b: 1, kind: "tcp"},
	}
	if w.path.fabric {
		w.beside = []*bystander{
			{name: "direct A-B", a: 0, b: 1, kind: "direct"},
			{name: "tcp A-B", a: 0, b: 1, kind: "tcp", stalls: map[victim]bool{clientDaemon: true, serverDaemon: true}},
			{name: "tcp A-C", a: 0, b: 2, kind: "tcp", stalls: map[victim]bool{clientDaemon: true}},
			{name: "tcp B-C", a: 1, b: 2, kind: "tcp", stalls: map[victim]bool{serverDaemon: true}},
		}
	}
	if w.path.relay { // the daemons carry direct ones, too
		w.beside = w.beside[1:]
	}
	for _, b := range w.beside {
		if err := w.connectBystander(b); err != nil {
			return err
		}
	}
	if _, err := w.serve(); err != nil {
		return err
	}
	return w.settle()
}

// address is that of a node, or of the loopback interface.
func (w *world) address(i int) string {
	if !w.path.fabric {
		return "127.0.0.1:0"
	}
	return fmt.Sprintf("10.77.0.%d:0", i+1)
}

// serverNode is the index of the namespace of the server.
func (w *world) serverNode() int { return min(1, len(w.spaces)-1) }

func (w *world) startDaemon(i int) error {
	id := strconv.Itoa(i + 1)
	args := []string{"up", "--dir", w.dirs[i], "--node", id, "--fair", "--addr", "10.77.0." + id + "/24"}
	if w.path.relay {
		args = append(args, "--direct", "fabric", "--listen", fmt.Sprint(":", hostPort), "--plaintext")
		var others []string
		for j := range i {
			others = append(others, cable(i, j).String())
		}
		if others != nil {
			args = append(args, "--join", strings.Join(others, ","))
		}
	}
	p, err := start(w.spaces[i], "daemon "+id, "exn-tun", args...)
	if err != nil {
		return err
	}
	line, err := p.line()
	if err == nil && !strings.HasPrefix(line, ifname+" is up") {
		err = fmt.Errorf("%s says %q", p.Name, line)
	}
	if err != nil {
		p.Kill()
		return err
	}
	w.daemons[i] = p
	return nil
}

// linked waits until each node is linked with each other.
func (w *world) linked() error {
	for i := range w.daemons {
		if err := wait(fmt.Sprintf("links of node %d", i+1), func() (bool, error) {
			s, err := w.status(i)
			if err != nil {
				return false, err
			}
			return testnode.Linked(s) == len(w.daemons)-1, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// status is what a daemon says.
func (w *world) status(i int) (*control.Status, error) {
	return testnode.Status(w.dirs[i], i+1)
}

// startPeers starts the client and the server that are not there.
func (w *world) startPeers() (err error) {
	if w.client == nil {
		if w.client, err = startPeer(w.spaces[0], "client", w.path.python); err != nil {
			return err
		}
	}
	if w.server == nil {
		w.server, err = startPeer(w.spaces[w.serverNode()], "server", w.path.python)
	}
	return err
}

// startBroker starts the broker of a world without a fabric, and finds its process.
func (w *world) startBroker() (err error) {
	switch {
	case w.path.fabric:
		return nil
	case w.path.python != nil:
		p, err := start(w.spaces[0], "exn-run", "exn-run", "--loopback", "--", "/bin/true")
		if err != nil {
			return err
		}
		<-p.Done
		p.Kill()
	default:
		if w.broker, err = startPeer(w.spaces[0], "broker", nil); err != nil {
			return err
		}
		if _, err := w.broker.ask(request{Op: "broker"}); err != nil {
			return err
		}
	}
	w.pid, err = brokerPID(w.spaces[0])
	return err
}

// brokerPID is the process of the broker of a namespace.
func brokerPID(ns *netns.NS) (pid int, err error) {
	err = ns.Do(func() error {
		path, err := brokerclient.Find()
		if err != nil {
			return err
		}
		pid, err = testlab.BrokerPID(path)
		return err
	})
	return pid, err
}

// nextID is a number for a connection or listener.
func (w *world) nextID() int {
	w.lastID++
	return w.lastID
}

// connectBystander makes the connection of a bystander, which then carries bytes both
// ways for as long as the world exists.
func (w *world) connectBystander(b *bystander) error {
	return waitFor(hangTime, "bystander "+b.name, func() (bool, error) {
		c := connection{client: w.others[b.a], server: w.others[b.b], kind: b.kind, cid: w.nextID(), sid: w.nextID(), lid: w.nextID()}
		if err := c.open(w.address(b.b)); err != nil {
			return false, err
		}
		b.aID, b.bID = c.cid, c.sid
		if err := c.pump(300, 3*time.Millisecond); err != nil {
			return false, err
		}
		if b.kind == "tcp" {
			return true, c.flows()
		}
		ok, err := c.becomesDirect(500 * time.Millisecond)
		if err == nil && !ok {
			return false, c.finish()
		}
		return ok, err
	})
}

// processes lists all processes by name, and their IDs.
func (w *world) processes() map[string]int {
	all := map[string]int{"client": w.client.PID(), "server": w.server.PID()}
	for _, o := range w.others {
		all[o.Name] = o.PID()
	}
	for _, d := range w.daemons {
		all[d.Name] = d.PID()
	}
	if w.pid != 0 {
		all["broker"] = w.pid
	}
	return all
}

func (w *world) pids() (all []int) {
	for _, pid := range w.processes() {
		all = append(all, pid)
	}
	return all
}

// settle waits until each process has as many descriptors as it had at the first call, or
// fewer.
func (w *world) settle() error {
	first := len(w.usual) == 0
	if first {
		time.Sleep(200 * time.Millisecond) // what lingers goes
	}
	for name, pid := range w.processes() {
		if first {
			n, err := descriptors(pid)
			if err != nil {
				return err
			}
			switch {
			case strings.HasPrefix(name, "bystander"):
				n++ // a direct connection takes one more when reading and writing sleep at once
			case w.path.python != nil && (name == w.client.Name || name == w.server.Name):
				n++ // the table of threads, once a descriptor was passed on
			}
			w.usual[name] = n
			continue
		}
		if err := wait("descriptors of "+name, func() (bool, error) {
			n, err := descriptors(pid)
			return n <= w.usual[name], err
		}); err != nil {
			return fmt.Errorf("%w: usually %d, now %s", err, w.usual[name], listing(pid))
		}
	}
	return nil
}

// reset begins the longest gaps of the bystanders anew.
func (w *world) reset() error {
	for _, b := range w.beside {
		if _, _, err := w.look(b, true); err != nil {
			return err
		}
	}
	return nil
}

// look asks the ends of a bystander.
func (w *world) look(b *bystander, reset bool) (a, z stat, err error) {
	if a, err = w.others[b.a].stat(b.aID, reset); err == nil {
		z, err = w.others[b.b].stat(b.bID, reset)
	}
	for _, s := range []stat{a, z} {
		switch {
		case err != nil:
		case s.TX.End != "" || s.RX.End != "":
			err = fmt.Errorf("bystander %s has ended: %q, %q", b.name, s.TX.End, s.RX.End)
		case s.RX.Bad != 0:
			err = fmt.Errorf("bystander %s got %d bytes that were not sent", b.name, s.RX.Bad)
		}
	}
	return a, z, err
}

// moves waits until a bystander's bytes come at both ends.
func (w *world) moves(b *bystander) error {
	a, z, err := w.look(b, false)
	if err != nil {
		return err
	}
	return wait("bytes of bystander "+b.name, func() (bool, error) {
		a2, z2, err := w.look(b, false)
		return a2.RX.Bytes > a.RX.Bytes && z2.RX.Bytes > z.RX.Bytes, err
	})
}

// close ends all, and checks that nothing is left in the namespaces.
func (w *world) close() error {
	var errs []string
	fail := func(err error) {
		if err != nil {
			errs = append(errs, err.Error())
		}
	}
	for _, r := range append([]*remote{w.client, w.server, w.broker}, w.others...) {
		if r != nil {
			_ = r.Signal(syscall.SIGCONT)
			r.Kill()
		}
	}
	for _, d := range w.daemons {
		if d != nil {
			_ = d.Signal(syscall.SIGCONT)
		}
	}
	for _, ns := range w.spaces {
		fail(wait("namespace without sockets", func() (bool, error) {
			all, err := tcpSockets(ns)
			for _, s := range all {
				if s.state != timeWait && s.state != finWait2 && s.local != hostPort && s.remote != hostPort {
					return false, err
				}
			}
			return true, err
		}))
	}
	for _, d := range w.daemons {
		if d == nil {
			continue
		}
		_ = d.Signal(syscall.SIGTERM)
		select {
		case <-d.Done:
		case <-time.After(hangTime):
			_ = d.Signal(syscall.SIGQUIT) // it says where it is
			time.Sleep(time.Second)
			fail(fmt.Errorf("%s does not end:\n%s", d.Name, d.Log.String()))
		}
		d.Kill()
	}
	if w.path.python != nil && w.pid != 0 {
		_ = unix.Kill(w.pid, unix.SIGCONT)
		_ = unix.Kill(w.pid, unix.SIGTERM)
		fail(wait("end of the broker", func() (bool, error) { return gone(w.pid), nil }))
	}
	for _, dir := range w.dirs {
		all, err := os.ReadDir(dir)
		fail(err)
		for _, f := range all {
			if f.Name() != "lock" {
				fail(fmt.Errorf("%s is left in the fabric's directory", f.Name()))
			}
		}
	}
	for _, ns := range w.spaces {
		if has, err := hasInterface(ns, ifname); err != nil || has {
			fail(fmt.Errorf("%s is left: %v, %v", ifname, has, err))
		}
	}
	if errs != nil {
		return fmt.Errorf("taking the world down: %s", strings.Join(errs, "; "))
	}
	return nil
}

// States of TCP sockets (tcp_states.h). FIN-WAIT-2 of a socket that no process has ends by
// itself after tcp_fin_timeout.
const (
	established = "01"
	finWait2    = "05"
	timeWait    = "06"
)

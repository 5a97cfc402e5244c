package exntun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/display"
	"exnet/internal/netns"
	"exnet/node/capture"
	"exnet/node/control"
)

// directLook is the time between two looks at the connections. A look that takes longer is not
// repeated before ten times as long.
const directLook = 300 * time.Millisecond

// directCapture is a capture of direct connections.
type directCapture struct {
	captureOptions
	p     program
	hold  *control.Hold
	flows *capture.Flows
	out   *capture.Capture
	began time.Time
	at    map[string]*directPlace // by the path of the broker
}

// directPlace is a network namespace whose packets are captured.
type directPlace struct {
	socket  *capture.Socket
	watched *capture.Watched
	source  *capture.Source
	read    chan struct{} // closed after the last packet
}

// captureDirect writes the packets of direct connections to w, until ctx ends or nobody reads them.
func (o captureOptions) captureDirect(ctx context.Context, p program, w io.Writer) (err error) {
	d := &directCapture{captureOptions: o, p: p, hold: control.NewHold(o.filter), flows: capture.NewFlows(), began: time.Now(), at: make(map[string]*directPlace)}
	first, err := d.askBrokers()
	if err != nil {
		return err
	}
	if len(first) == 0 {
		return errors.New("nobody to ask: no agent, node or exn-run --loopback runs here that has such connections: nothing is direct" + orAsRoot())
	}
	cfg := capture.Config{Writer: w, SnapLen: o.snapLen}
	for _, s := range first {
		cfg.Interfaces = append(cfg.Interfaces, interfaceOf(s))
	}
	if d.out, err = capture.Start(cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	for i, s := range first {
		if err := d.openPlace(s, d.out.Source(i)); err != nil {
			return err
		}
	}
	for {
		began := time.Now()
		if err := d.findNewClients(); err != nil {
			return err
		}
		select {
		case <-time.After(max(directLook, 10*time.Since(began))):
		case <-ctx.Done():
			return d.findNewClients()
		case <-d.out.Done():
			return nil // close says why
		}
	}
}

// askBrokers asks all brokers whose programs may have such connections.
func (d *directCapture) askBrokers() (all []*control.Sockets, err error) {
	ask := directOptions{nodeOptions: d.nodeOptions, only: d.only}
	if !d.only {
		if all, err = control.Brokers(); err != nil {
			return nil, err
		}
	}
	for _, f := range ask.toldFabrics() {
		at := d.nodeOptions
		at.dir = f.Dir
		nodes, err := askAll(at, (*control.Client).Sockets)
		if err != nil && (d.only || !errors.Is(err, control.ErrNoNode)) {
			return nil, err
		}
		all = append(all, nodes...)
	}
	kept := all[:0]
	for _, s := range all {
		if s.Broker != "" && d.filter.In([]string{s.Container, s.Name}) {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

// interfaceOf names a namespace in the capture.
func interfaceOf(s *control.Sockets) capture.Interface {
	name := "network namespace " + namespaceAt(s.Broker)
	switch {
	case s.Node != 0:
		name = fmt.Sprintf("node %d", s.Node)
	case s.Whose != control.Whose{}:
		name = containerOf(s.Whose)
	}
	return capture.Interface{Name: name, Description: "direct connections and flows, by TCP and UDP meanwhile", IP: true}
}

// namespaceAt is the inode of the network namespace that a broker serves, which names its socket.
func namespaceAt(path string) string {
	return printable(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
}

// openPlace begins to capture in a broker's namespace, unless that is gone again.
func (d *directCapture) openPlace(s *control.Sockets, to *capture.Source) error {
	inode, err := strconv.ParseUint(namespaceAt(s.Broker), 10, 64)
	if err != nil {
		return fmt.Errorf("broker %s: its name does not say which network namespace it serves", printable(s.Broker))
	}
	var socket *capture.Socket
	if err := inNamespace(inode, func() (err error) {
		socket, err = capture.OpenSocket(d.filter.Port, d.snapLen)
		return err
	}); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	p := &directPlace{socket, d.flows.Watch(to), to, make(chan struct{})}
	d.at[s.Broker] = p
	go func() {
		defer close(p.read)
		for {
			seen, err := p.socket.Read()
			if err != nil {
				return // it has ended
			}
			p.watched.Take(seen)
		}
	}()
	return nil
}

// inNamespace runs f in the network namespace with this inode.
func inNamespace(inode uint64, f func() error) error {
	for _, who := range append([]string{"self"}, listProcesses()...) {
		path := filepath.Join("/proc", who, "ns/net")
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Ino != inode {
			continue
		}
		if who == "self" {
			return f()
		}
		ns, err := netns.Open(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		if ns.Inode() == inode { // else the process has left it
			return ns.Do(f)
		}
	}
	return fmt.Errorf("%w: no process that this user may look at is in network namespace %d", os.ErrNotExist, inode)
}

// listProcesses lists the processes of this host.
func listProcesses() (pids []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if c := e.Name()[0]; c >= '0' && c <= '9' {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// findNewClients has whoever is new keep its connections on TCP, once their packets are
// captured, and learns which connections there are.
func (d *directCapture) findNewClients() error {
	all, err := d.askBrokers()
	if err != nil && !errors.Is(err, control.ErrNoNode) {
		return err
	}
	here := make(map[string]bool)
	for _, s := range all {
		here[s.Broker] = true
		if d.at[s.Broker] == nil {
			if err := d.openPlace(s, d.out.Add(interfaceOf(s))); err != nil {
				return err
			}
		}
	}
	for path, p := range d.at {
		if !here[path] { // another broker may be there next
			d.leavePlace(path, p)
		}
	}
	if err := d.holdAll(); err != nil {
		return err
	}
	for _, s := range all {
		p := d.at[s.Broker]
		if p == nil {
			continue
		}
		known := make([]capture.Known, 0, len(s.Connections))
		for _, c := range s.Connections {
			known = append(known, d.knownOf(s, c))
		}
		p.watched.Know(known)
	}
	return nil
}

// knownOf is what the capture wants to know of a connection.
func (d *directCapture) knownOf(s *control.Sockets, c connstats.Connection) capture.Known {
	return capture.Known{
		UDP: c.UDP, Local: c.Local, Remote: c.Remote, Server: c.Server, Process: processOf(c),
		Wanted:    d.filter.Fits([]string{s.Container, s.Name}, &c),
		AnyClient: d.filter.PID == 0,
	}
}

// holdAll asks all who are not asked yet to keep the connections on TCP.
func (d *directCapture) holdAll() error {
	var told []control.Switched
	if !d.only {
		var err error
		if told, err = d.hold.Brokers(); err != nil {
			return err
		}
	}
	for _, f := range (directOptions{nodeOptions: d.nodeOptions, only: d.only}).toldFabrics() {
		at := d.nodeOptions
		at.dir = f.Dir
		nodes, err := at.selectedNodes()
		for _, n := range nodes {
			var s *control.Switched
			if s, err = d.hold.Node(f.Dir, n); s != nil {
				told = append(told, *s)
			}
		}
		if err != nil && !errors.Is(err, control.ErrNoNode) {
			return err
		}
	}
	for _, s := range told {
		writeSwitch(d.p.stderr, s, control.Request{Direct: &d.filter})
	}
	return nil
}

// leavePlace ends the capture in a namespace, with what its socket still holds.
func (d *directCapture) leavePlace(path string, p *directPlace) {
	delete(d.at, path)
	_ = p.socket.End()
	<-p.read
	p.watched.Leave()
	p.source.Missed(uint64(p.socket.Dropped()))
	_ = p.socket.Close()
}

// close ends the capture, lets the connections go, and says what it has come to.
func (d *directCapture) close() error {
	for path, p := range d.at {
		d.leavePlace(path, p)
	}
	err := ignorePipe(d.out.Close())
	var s capture.Stats
	for _, of := range d.out.All() {
		s.Frames += of.Frames
		s.Written += of.Written
		s.Bytes += of.Bytes
	}
	fmt.Fprintf(d.p.stderr, "%s of %s written; %d lost. In %v they carried %s%s by TCP and UDP. Connections may be direct again\n",
		display.Count(int(s.Written), "packet"), display.Count(d.flows.Count(), "connection"), s.Lost(),
		time.Since(d.began).Round(directLook/3), choose(s.Lost() > 0, "at least ", ""), display.Bytes(s.Bytes))
	return errors.Join(err, d.hold.Close())
}

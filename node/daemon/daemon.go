package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"exnet/fabric"
	"exnet/fabric/crossbar"
	"exnet/fabric/emp"
	"exnet/fabric/emp/mesh"
	"exnet/fabric/identity"
	"exnet/fabric/nic"
	"exnet/internal/netns"
	"exnet/internal/sched"
	"exnet/napi"
	"exnet/node"
	"exnet/node/exporter"
	"exnet/node/txloop"
)

// Daemon is a node.
//
// Concurrency: see the package.
type Daemon struct {
	cfg      Config
	started  time.Time
	realtime atomic.Bool

	ns        *netns.NS // nil: the process's own
	member    *emp.Member
	store     *identity.Store // nil: no other hosts, or in plaintext
	mesh      *mesh.Mesh      // nil: no other hosts
	streams   streams
	groups    *groups
	nic       *nic.NIC
	crossbars *crossbar.Crossbars // nil: no topology
	profiling profiling
	node      *node.Node
	loop      *txloop.Loop
	control   *net.UnixListener
	sockets   *sockets
	carrier   *carrier
	rates     rates
	services  []offered
	wires     wires
	exporter  *exporter.Exporter // nil: no metrics
	refused   refusals

	stop   context.CancelFunc // set by Run
	ready  sync.WaitGroup     // until stop is set
	ending atomic.Bool

	setting sync.Mutex // held by Set
	stopMu  sync.Mutex
	// stoppers: clients to wait for the end.
	stoppers  []net.Conn  // +checklocks:stopMu
	capturing atomic.Bool // a client captures
}

// Start brings up a node, which its peers find when Run is called. Close removes
// it.
func Start(cfg Config) (d *Daemon, err error) {
	cfg, err = cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	d = &Daemon{cfg: cfg, started: time.Now()}
	d.ready.Add(1)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
			d = nil
		}
	}()
	if d.ns, err = cfg.openNS(); err != nil {
		return d, err
	}
	if err = d.openStore(); err != nil {
		return d, err
	}
	cfg = d.cfg
	if cfg.Metrics != "" {
		if d.exporter, err = d.openMetrics(); err != nil {
			return d, err
		}
	}
	d.setPriority(cfg.Receive.Mode)
	join := emp.Config{
		Dir:   cfg.Dir,
		Group: cfg.Group,
		Node:  cfg.Node,
		Addrs: cfg.Addrs,
		MTU:   int(cfg.MTU),
		MAC:   func(n fabric.NodeID) string { return cfg.MACPrefix.MAC(n).String() },
		Log:   cfg.Log,
		// Called by Run, when all is there.
		OnGroups: func(now []emp.Group) { d.groups.setGroups(now) },
		OnLeft:   func(n fabric.NodeID) { d.carrier.nodeLeft(n) },
		Topology: topologyID(cfg.Topology),
	}
	if cfg.Faults != nil {
		join.Link = linkWire
	}
	if cfg.Topology != nil {
		join.Has = cfg.Topology.Has
	}
	if d.member, err = emp.Join(join); err != nil {
		return d, err
	}
	d.groups = &groups{self: d.member.ID()}
	if err = d.openMesh(); err != nil {
		return d, err
	}
	if d.nic, err = nic.New(nic.Config{Node: d.member.ID()}); err != nil {
		return d, err
	}
	if err = d.routeByTopology(); err != nil {
		return d, err
	}
	d.groups.setRoutes(d.nic.Routes(), d.listHomes(), d.remoteGroups)
	if err = d.startNode(); err != nil {
		return d, err
	}
	if d.control, err = d.listenControl(); err != nil {
		return d, err
	}
	if d.sockets, err = d.openSockets(); err != nil {
		return d, err
	}
	if err = d.openCarrier(); err != nil {
		return d, err
	}
	for _, open := range offers {
		s, err := open(d)
		d.services = append(d.services, s) // what there is of it is closed with the node
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// setPriority gives the process the priority for its receive mode: a process that polls
// all the time must not have real-time priority, which would starve all others.
func (d *Daemon) setPriority(m napi.Mode) {
	want := !d.cfg.Fair && m != napi.ModeBusyPoll
	if d.realtime.Load() == want {
		return
	}
	var err error
	if want {
		err = sched.Realtime()
	} else {
		err = sched.Normal()
	}
	if err != nil {
		d.cfg.Log.Warn("cannot change the priority of the data path", "reason", err)
		return
	}
	d.realtime.Store(want)
}

// startNode brings up the interface and what serves it.
func (d *Daemon) startNode() (err error) {
	cfg := d.cfg
	var loop atomic.Pointer[txloop.Loop] // made after the node that wakes it
	d.node, err = node.New(node.Config{
		NS:                d.ns,
		NIC:               d.nic,
		Name:              cfg.Interface,
		Left:              cfg.Left,
		Addrs:             cfg.Addrs,
		MTU:               cfg.MTU,
		MACPrefix:         cfg.MACPrefix,
		EagerThreshold:    cfg.EagerThreshold,
		VELOBudget:        cfg.Receive.VELOBudget,
		RMABudget:         cfg.Receive.RMABudget,
		NoFastPath:        cfg.NoFastPath,
		TAP:               cfg.TAP,
		Groups:            d.groups,
		CongestionControl: cfg.Congestion,
		OnReady: func() {
			if l := loop.Load(); l != nil {
				l.Wake()
			}
		},
	})
	if err != nil {
		return err
	}
	if err := d.node.Interface.SetCoalesce(cfg.Receive.Coalesce); err != nil {
		return err
	}
	if err := d.node.Interface.SetMode(cfg.Receive.Mode); err != nil {
		return err
	}
	d.loop, err = txloop.New(txloop.Config{Ports: []txloop.Port{d.node.Port()}})
	loop.Store(d.loop)
	return err
}

// Run carries packets until ctx is cancelled or Stop is called, then returns nil,
// or until something fails.
func (d *Daemon) Run(ctx context.Context) error {
	asked, stop := context.WithCancel(ctx)
	d.stop = stop
	defer stop()
	d.ready.Done()
	if d.ending.Load() {
		return nil
	}
	run, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, ctx := errgroup.WithContext(run)
	g.Go(func() error {
		select {
		case <-asked.Done():
			d.carrier.goBack()
		case <-ctx.Done():
		}
		end()
		return nil
	})
	g.Go(func() error { return d.node.Interface.Run(ctx) })
	g.Go(func() error { return d.loop.Run(ctx) })
	g.Go(func() error { return d.member.Run(ctx, d.linkPeer) })
	if d.mesh != nil {
		g.Go(func() error { d.mesh.Run(ctx, d.linkHost); return nil })
	}
	g.Go(func() error { return d.serveControl(ctx) })
	g.Go(func() error { return d.sockets.serveBroker(ctx) })
	g.Go(func() error { return d.carrier.carryConnections(ctx) })
	g.Go(func() error { return d.rates.sampleLinks(ctx, d.knownPeers) })
	for _, s := range d.services {
		g.Go(func() error { return s.about().serveUntil(ctx) })
	}
	if d.exporter != nil {
		d.cfg.Log.Info("metrics", "url", d.exporter.URL())
		g.Go(func() error { return d.exporter.Run(ctx) })
	}
	return g.Wait()
}

// Dup returns another descriptor of the interface, which stays as long as that is open.
func (d *Daemon) Dup() (fd int, err error) { return d.node.Device.Dup() }

// Stop ends Run, and does not wait for it.
func (d *Daemon) Stop() {
	d.ending.Store(true)
	d.ready.Wait()
	d.stop()
}

// Close removes the node. Run must have returned, or not have been called.
func (d *Daemon) Close() error {
	var errs []error
	if d.control != nil {
		errs = append(errs, ignoreClosed(d.control.Close()))
	}
	if d.exporter != nil {
		errs = append(errs, d.exporter.Close())
	}
	if d.sockets != nil {
		errs = append(errs, d.sockets.close())
	}
	for _, s := range d.services {
		errs = append(errs, s.about().close(), s.closeFar())
	}
	if d.mesh != nil {
		d.mesh.Close()
	}
	if d.member != nil {
		errs = append(errs, d.member.Leave())
	}
	if d.carrier != nil {
		errs = append(errs, d.carrier.engine.Close())
	}
	if d.node != nil {
		errs = append(errs, d.node.Close())
	}
	if d.loop != nil {
		errs = append(errs, d.loop.Close())
	}
	if d.nic != nil {
		errs = append(errs, d.nic.Close())
	}
	if d.ns != nil {
		errs = append(errs, d.ns.Close())
	}
	d.stopMu.Lock()
	defer d.stopMu.Unlock()
	for _, c := range d.stoppers {
		c.Close() // it may be gone
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// String describes the daemon once it is up.
func (d *Daemon) String() string {
	s := fmt.Sprintf("%s is up: node %d of fabric %s", d.node.Device.Name(), d.member.ID(), d.cfg.Fabric)
	for _, a := range d.cfg.Addrs {
		s += ", " + a.String()
	}
	s += fmt.Sprintf(", MTU %d", d.cfg.MTU)
	if d.cfg.TAP {
		s += ", Ethernet (TAP): netstack is bypassed"
	}
	if d.mesh != nil {
		s += fmt.Sprintf(", listening on %v", d.mesh.Addr())
		if d.store == nil {
			s += " in plaintext"
		}
	}
	return s
}

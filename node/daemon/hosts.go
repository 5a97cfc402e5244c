package daemon

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/emp/mesh"
	"exnet/fabric/identity"
	"exnet/fabric/link/ofi"
	"exnet/fabric/link/shm"
	"exnet/fabric/link/stream"
	"exnet/fabric/link/wire"
	"exnet/internal/counter"
	"exnet/node/control"
	"exnet/node/hostnet"
)

// Hosts says how a node finds the nodes of other hosts. With the zero Hosts it does not.
type Hosts struct {
	// Listen is the address that they connect to, as mesh.CheckListen returns it.
	Listen string
	// Join are members to look for, as mesh.CheckJoin returns them.
	Join []string
	// Key names the node's key and certificate (identity.Paths), Trust the file
	// with the trusted keys.
	Key, Trust string
	// Plaintext encrypts nothing and trusts everybody.
	Plaintext bool
	// Link is what carries the traffic, as CheckLink has it. Default: stream.
	Link string
	// Conns is how many TCP connections carry the traffic with a peer that this node has
	// reached, 1 to stream.MaxConns. Default 1.
	Conns int
	// Congestion is the TCP congestion control of these connections, for what this node
	// sends. Default: the system's, or cubic where that is bbr and the peer is less than
	// hostNear away.
	Congestion string
}

// Values of Hosts.Link; linkOFI may be followed by a colon and a provider.
const (
	linkStream = "stream"
	linkOFI    = "ofi"
)

// CheckLink reports what is wrong with a link between hosts: it is stream, ofi or
// ofi:PROVIDER.
func CheckLink(s string) error {
	if s == linkStream || s == "" {
		return nil
	}
	_, err := Hosts{Link: s}.providerName()
	return err
}

// byOFI says that libfabric carries the traffic.
func (h Hosts) byOFI() bool { return h.Link != "" && h.Link != linkStream }

// providerName returns libfabric's provider; "": any.
func (h Hosts) providerName() (string, error) {
	kind, name, named := strings.Cut(h.Link, ":")
	if kind != linkOFI || named && name == "" {
		return "", fmt.Errorf("%q: use stream, ofi or ofi:PROVIDER, such as ofi:tcp: %w", h.Link, fabric.ErrInvalid)
	}
	return name, ofi.CheckProvider(name)
}

// A peer of another host that is silent is given up after hostDown.
const (
	hostBeat = time.Second
	hostDown = 5 * time.Second
	// hostNear is the round trip from which on a peer's connections keep the pace of bbr.
	hostNear = time.Millisecond
	// askTime bounds asking the members whether the node may join.
	askTime = 15 * time.Second
	// buildTime bounds compiling the helper of libfabric.
	buildTime = time.Minute
)

// needsListen names a setting that is for nodes of other hosts.
func (h *Hosts) needsListen() string {
	switch {
	case len(h.Join) > 0:
		return "join"
	case h.Key != "":
		return "key"
	case h.Trust != "":
		return "trust"
	case h.Plaintext:
		return "plaintext"
	case h.Conns > 1:
		return "conns"
	}
	return "conns-congestion"
}

// checkHosts returns an error if settings contradict each other.
func (c Config) checkHosts() error {
	h, dash := c.Hosts, c.Dash
	keys := h.Key != "" || h.Trust != ""
	if err := CheckLink(h.Link); err != nil {
		return configError("hosts.link", "link %w", err)
	}
	switch {
	case h.Listen == "" && h.byOFI():
		return configError("hosts.link", "%s %s also needs %s, for example :%d", dash+"link", h.Link, dash+"listen", mesh.DefaultPort)
	case h.Listen == "" && (len(h.Join) > 0 || keys || h.Plaintext || h.Conns > 1 || h.Congestion != ""):
		return configError("hosts", "%s also needs %s, for example :%d", dash+h.needsListen(), dash+"listen", mesh.DefaultPort)
	case h.Listen == "":
		return nil
	case keys && h.Plaintext:
		return configError("hosts.plaintext", "%s needs neither %s nor %s: leave out one or the other", dash+"plaintext", dash+"key", dash+"trust")
	case !h.Plaintext && (h.Key == "" || h.Trust == ""):
		return configError("hosts.listen", "%s needs %s and %s (see exn-tun key), or %s on a network that is trusted or encrypted below", dash+"listen", dash+"key", dash+"trust", dash+"plaintext")
	case h.Conns < 0 || h.Conns > stream.MaxConns:
		return configError("hosts.conns", "%d connections for each peer: use 1 to %d", h.Conns, stream.MaxConns)
	case h.Conns > 1 && h.byOFI():
		return configError("hosts.conns", "%d connections for each peer are for link stream: libfabric has one", h.Conns)
	case h.Congestion != "" && h.byOFI():
		return configError("hosts.congestion", "congestion control %s is for link stream: libfabric chooses its own", h.Congestion)
	case c.Faults != nil && h.byOFI():
		return configError("faults", "link %s has no faults: leave out one of both", h.Link)
	case h.Plaintext && c.Node == nil:
		return configError("hosts.plaintext", "%s needs %s: without a certificate nothing else names this node", dash+"plaintext", dash+"node")
	}
	return nil
}

// openStore reads the key and the trust file, and takes the node ID of the certificate.
func (d *Daemon) openStore() (err error) {
	h := d.cfg.Hosts
	if h.Listen == "" || h.Plaintext {
		return nil
	}
	d.store, err = identity.Open(identity.Config{Key: h.Key, Trust: h.Trust, Fabric: d.cfg.Fabric, Log: d.cfg.Log})
	if err != nil {
		return d.cfg.missingKey(err)
	}
	id := d.store.Pair().Name.Node
	if d.cfg.Node != nil && *d.cfg.Node != id {
		return fmt.Errorf("identity: %w: the certificate of %s is for node %d, not %d: leave the ID out, or use that node's key", identity.ErrNode, h.Key, id, *d.cfg.Node)
	}
	d.cfg.Node = &id
	return d.cfg.checkNode()
}

// missingKey says of a file of the store that does not exist which command makes it. It returns
// any other error as it is.
func (c Config) missingKey(err error) error {
	missing, ok := errors.AsType[*fs.PathError](err)
	if !ok || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	setting, makes := "key", "exn-tun key node"
	if missing.Path == c.Hosts.Trust {
		setting, makes = "trust", "exn-tun key ca"
	}
	return fmt.Errorf("%w: %s: %s does not exist: make it with %s", ErrConfig, c.Dash+setting, missing.Path, makes)
}

// openMesh begins to listen for nodes of other hosts, and asks them to admit this node.
func (d *Daemon) openMesh() (err error) {
	h := d.cfg.Hosts
	if h.Listen == "" {
		return nil
	}
	if h.Plaintext {
		d.cfg.Log.Warn("PLAINTEXT: whoever reaches the port can join the fabric, read and change its traffic", "listen", h.Listen)
	}
	if err := d.checkOFI(); err != nil {
		return err
	}
	control := hostnet.ControlNear
	if h.Congestion != "" {
		control = hostnet.ControlCongestion(h.Congestion)
	}
	d.mesh, err = mesh.Open(mesh.Config{
		Listen: h.Listen, Join: h.Join, Fabric: d.cfg.Fabric, Self: d.member.Self(), Store: d.store, Conns: h.Conns, Control: control, Log: d.cfg.Log,
		Local: func() []emp.Description {
			all, _ := emp.List(d.cfg.Dir) // those that can be read
			return all
		},
		OnGroups:   func() { d.groups.noteChanged() },
		OnUnlinked: d.unlinkedHost,
		OnLeft:     d.leftHost,
		OnRequest:  d.fromHost,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	return d.mesh.Ask(ctx)
}

// checkOFI reports whether libfabric can be used, if it is to be.
func (d *Daemon) checkOFI() error {
	h := d.cfg.Hosts
	if !h.byOFI() {
		return nil
	}
	provider, err := h.providerName()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	if err := ofi.Check(ctx, provider); err != nil {
		return err
	}
	if !h.Plaintext {
		d.cfg.Log.Warn("NOT ENCRYPTED: libfabric sends the fabric's traffic in plaintext; only the members are authenticated", "link", h.Link)
	}
	return nil
}

// hostTime is how long a node of another host may take to answer: less than a client waits.
const hostTime = 4 * time.Second

// passToNode sends a request to a node of another host and returns its answer.
func (d *Daemon) passToNode(n fabric.NodeID, req control.Request) (r control.Reply, err error) {
	if d.mesh == nil {
		return r, fmt.Errorf("no node of another host is linked: %w", fabric.ErrPeerDown)
	}
	req.Node = nil
	text, err := json.Marshal(req)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostTime)
	defer cancel()
	if text, err = d.mesh.Request(ctx, n, text); err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// isForHosts reports whether nodes of other hosts may make a request: all nodes must agree on
// routes, and each knows only the load that it counted itself.
func isForHosts(req control.Request) bool {
	switch req.Op {
	case control.OpRoute:
		return req.Route != nil && req.Node == nil
	case control.OpTopology, control.OpProfile:
		return req.Node == nil
	}
	return false
}

// fromHost answers a node of another host.
func (d *Daemon) fromHost(from fabric.NodeID, text []byte) []byte {
	var req control.Request
	var r control.Reply
	switch err := json.Unmarshal(text, &req); {
	case err != nil:
		r.Error = "malformed request: " + err.Error()
	case !isForHosts(req):
		r.Error = fmt.Sprintf("operation %q is not for other hosts", req.Op)
	default:
		r = d.answerRequest(req)
		if isChanging(req) && r.Error == "" {
			d.cfg.Log.Info("changed from another host", "node", from, "what", req.Op)
		}
	}
	answer, err := json.Marshal(r)
	if len(answer) > mesh.MaxText {
		answer, err = json.Marshal(control.Reply{Error: fmt.Sprintf("an answer of %d bytes is too long for another host: ask on that node's host", len(answer))})
	}
	if err != nil {
		return []byte("null") // a Reply without what cannot be written
	}
	return answer
}

// isChanging reports whether a request of another host changes anything.
func isChanging(req control.Request) bool {
	switch req.Op {
	case control.OpRoute:
		return req.Route.Want != control.RouteList && req.Route.Want != control.RouteCheck
	case control.OpProfile:
		return req.Profile != control.ProfileRead
	}
	return false
}

// listHomes returns where the node finds others.
func (d *Daemon) listHomes() []emp.Home {
	all := []emp.Home{d.member}
	if d.mesh != nil {
		all = append(all, d.mesh)
	}
	return all
}

// knownPeers returns the other nodes, of the directory and of other hosts.
func (d *Daemon) knownPeers() []emp.Peer {
	all := d.member.Peers()
	if d.mesh == nil {
		return all
	}
	here := make(map[fabric.NodeID]bool)
	for _, p := range all {
		here[p.Node] = true
	}
	for _, p := range d.mesh.Peers() {
		if !here[p.Node] {
			all = append(all, p)
		}
	}
	return all
}

// linkHost joins the NIC with the NIC of a node of another host: over a stream link, or over
// a link that may lose packets if one of the two nodes asks for that.
func (d *Daemon) linkHost(conns []net.Conn, peer fabric.NodeID) (l emp.Link, err error) {
	if d.cfg.Faults != nil || asksForWire(d.mesh, peer) {
		for _, c := range conns[1:] {
			c.Close()
		}
		l, err = d.overConn(conns[0], peer)
	} else {
		l, err = d.overStream(conns, peer)
	}
	if err != nil {
		return nil, err
	}
	d.carrier.followLink(peer, l, true)
	for _, s := range d.services {
		s.about().followLink(peer)
	}
	d.groups.noteChanged()
	return l, nil
}

// unlinkedHost follows the end of the link to a node of another host.
func (d *Daemon) unlinkedHost(peer fabric.NodeID) {
	for _, s := range d.services {
		s.about().noteUnlinked(peer)
	}
}

// leftHost follows a node of another host that has left the fabric.
func (d *Daemon) leftHost(peer fabric.NodeID) {
	for _, s := range d.services {
		s.about().noteLeft(peer)
	}
	d.carrier.nodeLeft(peer)
}

func (d *Daemon) overStream(conns []net.Conn, peer fabric.NodeID) (emp.Link, error) {
	cfg := stream.Config{Peer: peer, Conns: conns, Driver: d.loop, Heartbeat: hostBeat, DownAfter: hostDown}
	if d.cfg.Hosts.byOFI() {
		provider, err := d.cfg.Hosts.providerName()
		if err == nil {
			cfg.Engine, err = d.joinOFI(conns[0], peer, provider)
		}
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return nil, err
		}
	}
	congestion := ""
	if cfg.Engine == nil {
		for _, c := range conns {
			d.setCongestion(c, peer)
		}
		congestion = congestionOf(conns[0])
	}
	l, err := stream.New(d.cardForLinks(), cfg)
	if err != nil {
		return nil, err // not a *stream.Link that is nil
	}
	d.streams.add(l, congestion)
	return l, nil
}

// setCongestion gives a connection to a peer the congestion control that suits its way, unless
// the configuration names one.
func (d *Daemon) setCongestion(conn net.Conn, peer fabric.NodeID) {
	raw, ok := rawOf(conn)
	if !ok || d.cfg.Hosts.Congestion != "" {
		return
	}
	if err := hostnet.SettleNear(raw, hostNear); err != nil { // it works with either
		d.cfg.Log.Debug("congestion control of a connection", "peer", peer, "err", err)
	}
}

// congestionOf is the TCP congestion control of a connection to a peer; "": unknown.
func congestionOf(conn net.Conn) string {
	raw, ok := rawOf(conn)
	if !ok {
		return ""
	}
	name, _ := hostnet.CongestionOf(raw) // the peer may be gone
	return name
}

// rawOf is the socket of a connection, below TLS if it has that.
func rawOf(conn net.Conn) (syscall.Conn, bool) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	raw, ok := conn.(syscall.Conn)
	return raw, ok
}

// joinOFI makes a connection by libfabric to the node at the other end of conn.
func (d *Daemon) joinOFI(conn net.Conn, peer fabric.NodeID, provider string) (stream.Engine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	e, err := ofi.Join(ctx, conn, ofi.Config{Self: d.cardForLinks().ID(), Peer: peer, Provider: provider})
	if err != nil {
		return nil, err // not an *ofi.Engine that is nil
	}
	return e, nil
}

// streams are the links to nodes of other hosts. The last one to each peer outlives its
// end, so that its counters do.
//
// Concurrency: all methods may be called from many goroutines.
type streams struct {
	mu    sync.Mutex
	links map[fabric.NodeID]streamOf // +checklocks:mu
}

// streamOf is a link and the congestion control of its connections, "": not known.
type streamOf struct {
	*stream.Link
	congestion string
}

func (s *streams) add(l *stream.Link, congestion string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links == nil {
		s.links = make(map[fabric.NodeID]streamOf)
	}
	s.links[l.Peer()] = streamOf{l, congestion}
}

// toPeer returns the link to a peer; its Link is nil if there was none.
func (s *streams) toPeer(peer fabric.NodeID) streamOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[peer]
}

// addHosts adds the counters of what other hosts are reached by.
func (d *Daemon) addHosts(c *counter.List) {
	if d.mesh == nil {
		return
	}
	c.Add("hosts.", d.mesh.Stats().All())
	for _, p := range d.mesh.Peers() {
		if l := d.streams.toPeer(p.Node); l.Link != nil {
			c.Add(fmt.Sprintf("stream.node%d.", p.Node), l.Stats().All())
		}
	}
}

// addLink says which link carries a peer's traffic.
func (d *Daemon) addLink(to *control.Peer, p emp.Peer) {
	if p.Endpoint.IsValid() {
		to.Endpoint, to.Key = p.Endpoint.String(), p.Key
	}
	switch l := p.Link.(type) {
	case *shm.Link:
		to.Link = "shm"
		to.TxRate, to.RxRate = d.rates.ofLink(l)
	case *wire.Link:
		to.Link, to.RTTMicros = "wire", roundTrip(l.RTT())
		to.TxRate, to.RxRate = d.rates.ofLink(l)
	case *stream.Link:
		stats := l.Stats()
		to.Link, to.RTTMicros, to.TxRate, to.RxRate = l.Name(), stats.RTTMicros, stats.TxRate, stats.RxRate
		to.Congestion = d.streams.toPeer(p.Node).congestion
	}
}

// remoteGroups returns the IP multicast groups of the nodes of other hosts.
func (d *Daemon) remoteGroups() map[netip.Addr][]fabric.NodeID {
	if d.mesh == nil {
		return nil
	}
	return d.mesh.Groups()
}

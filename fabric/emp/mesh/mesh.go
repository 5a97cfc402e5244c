package mesh

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/identity"
	"exnet/internal/counter"
	"exnet/internal/ctxend"
)

// DefaultPort is where nodes listen, and where --join looks, if nothing else is said.
const DefaultPort = 4791

// Linker makes a link of data connections to a peer, over which nothing was sent that
// was not received. It takes them, even if it fails; it fails when they are closed
// meanwhile.
type Linker func(conns []net.Conn, peer fabric.NodeID) (emp.Link, error)

// Config is what a Mesh is made with. The zero value of a field means its default.
type Config struct {
	// Listen is where other nodes connect to, as CheckListen returns it. Required.
	Listen string
	// Join are members that this node looks for, as CheckJoin returns them. Default:
	// it waits for others.
	Join []string
	// Lookup returns the addresses of a name. Default: the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Fabric is the name of the fabric. Required.
	Fabric string
	// Self is what the node says about itself. Required.
	Self emp.Description
	// Store is the node's key and whom it trusts. Default: nothing is encrypted, and
	// everybody is believed.
	Store *identity.Store
	// Conns is how many connections a link has. Default 1.
	Conns int
	// Control is that of net.Dialer and net.ListenConfig, for all connections. Default: none.
	Control func(network, address string, c syscall.RawConn) error
	// Local returns the living nodes of the host's directory, this one among them: no
	// links are made to these. Default: there are none.
	Local func() []emp.Description
	// OnGroups is called when the members of IP multicast groups have changed. It must
	// not call the Mesh. Default: nobody is.
	OnGroups func()
	// OnUnlinked is called when a link to a node has ended, before the next one is made, and OnLeft
	// after it if the node has said that it leaves. Default: nobody is.
	OnUnlinked, OnLeft func(fabric.NodeID)
	// OnRequest answers a Request of another node, JSON both. It is called one at a time for
	// each node, and must not wait for other nodes. Default: null is the answer.
	OnRequest func(from fabric.NodeID, text []byte) []byte
	// Log is notified of peers. Default: nobody is.
	Log *slog.Logger
}

// Stats are the counters of a Mesh.
type Stats struct {
	Dials         uint64 // attempts to reach a node
	Failed        uint64 // of these, those without a connection
	Accepted      uint64 // connections of others
	Refused       uint64 // of these, those of strangers, or of nodes that cannot join
	Dropped       uint64 // closed at once, as too many were not authenticated yet
	Sessions      uint64 // control connections
	Lost          uint64 // of these, those that ended without notice
	RumorsIgnored uint64 // about nodes, beyond what a member may report
}

// All yields the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] { return counter.All(s) }

type counters struct{ Dials, Failed, Accepted, Refused, Dropped, Sessions, Lost, RumorsIgnored atomic.Uint64 }

// Mesh is a node among those of other hosts.
//
// Concurrency: all methods may be called from many goroutines; Ask before Run, and Run
// once.
type Mesh struct {
	cfg   Config
	ln    net.Listener
	count counters
	woken chan struct{} // holds a token: somebody is to be dialed, or reported
	live  context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
	// requests so far
	requests atomic.Uint64
	given    map[string]bool // of the seeds, those that Config.Join has; constant

	names []string // each has the addresses of all members; see names.go

	mu sync.Mutex
	// seeds are the addresses of the book's seeds: those that were given, and those that names
	// have.
	book     *book                       // +checklocks:mu
	seeds    []string                    // +checklocks:mu
	named    map[string]map[string]bool  // +checklocks:mu
	sessions map[fabric.NodeID]*session  // +checklocks:mu
	cookies  map[string]*session         // +checklocks:mu
	peers    map[fabric.NodeID]*emp.Peer // +checklocks:mu
	groups   map[netip.Addr]bool         // +checklocks:mu
	gate     gate                        // +checklocks:mu
	told     map[string]time.Time        // +checklocks:mu
	// leaves: it has said so, and says it to those that it meets now.
	leaves bool // +checklocks:mu
	// linker: nil: Run has not begun.
	linker Linker // +checklocks:mu
}

var _ emp.Home = (*Mesh)(nil)

// Open begins to listen, and answers those who ask whether they may join. Close ends it.
// The error is that of the address.
func Open(cfg Config) (*Mesh, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Local == nil {
		cfg.Local = func() []emp.Description { return nil }
	}
	if cfg.OnUnlinked == nil {
		cfg.OnUnlinked = func(fabric.NodeID) {}
	}
	if cfg.OnLeft == nil {
		cfg.OnLeft = func(fabric.NodeID) {}
	}
	if cfg.OnGroups == nil {
		cfg.OnGroups = func() {}
	}
	if cfg.OnRequest == nil {
		cfg.OnRequest = answerNothing
	}
	if cfg.Conns == 0 {
		cfg.Conns = 1
	}
	if cfg.Lookup == nil {
		cfg.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	ln, err := listen(cfg)
	if err != nil {
		return nil, err
	}
	m := &Mesh{
		cfg: cfg, ln: ln, woken: make(chan struct{}, 1),
		sessions: make(map[fabric.NodeID]*session), cookies: make(map[string]*session),
		given: make(map[string]bool), named: make(map[string]map[string]bool), peers: make(map[fabric.NodeID]*emp.Peer), groups: make(map[netip.Addr]bool), told: make(map[string]time.Time),
	}
	m.live, m.stop = context.WithCancel(context.Background())
	m.work.Go(m.acceptConns)
	for _, at := range cfg.Join {
		if name, ok := strings.CutPrefix(at, allOf); ok {
			m.names = append(m.names, name)
		} else {
			m.seeds = append(m.seeds, at)
			m.given[at] = true
		}
	}
	m.book = newBook(Rumor{Node: cfg.Self.Node, Token: cfg.Self.Token, Since: cfg.Self.Since.UnixNano()}, len(m.seeds))
	return m, nil
}

func listen(cfg Config) (net.Listener, error) {
	var refused error // by Control
	lc := net.ListenConfig{}
	if cfg.Control != nil {
		lc.Control = func(network, address string, c syscall.RawConn) error {
			refused = cfg.Control(network, address, c)
			return refused
		}
	}
	ln, err := lc.Listen(context.Background(), "tcp", cfg.Listen)
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, fmt.Errorf("%w: choose another address or port with --listen", withoutPorts(err))
	}
	return ln, nil
}

// Addr returns where the node listens.
func (m *Mesh) Addr() netip.AddrPort { return addrPort(m.ln.Addr()) }

// Stats returns the counters.
func (m *Mesh) Stats() (s Stats) {
	counter.Load(&m.count, &s)
	return s
}

// Close ends a Mesh that does not run any more. It is idempotent.
func (m *Mesh) Close() {
	m.stop()
	m.work.Wait()
}

func (m *Mesh) isRunning() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.linker != nil
}

// Ask asks the members that are to be joined, as far as they can be reached, whether this node may
// be one. The error is that of an address that does not resolve, or a member's final refusal. It is
// no error, but is logged, if nobody can be reached, or if a name of all members has no address:
// this node may be the first.
func (m *Mesh) Ask(ctx context.Context) error {
	for _, addr := range m.seedsNow() {
		host, _, err := net.SplitHostPort(addr)
		if err == nil {
			_, err = m.cfg.Lookup(ctx, host)
		}
		if err != nil {
			return fmt.Errorf("mesh: join %s: %w", addr, err)
		}
	}
	for _, name := range m.names {
		m.resolveName(ctx, name)
	}
	seeds := m.seedsNow()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(seeds))
	for _, addr := range seeds {
		go func() {
			_, _, err := m.dialMember(ctx, addr, hello{Kind: kindAsk})
			answers <- answer{addr, err}
		}()
	}
	for range seeds {
		a := <-answers
		var no *refusal
		if errors.As(a.err, &no) && no.final {
			return a.err
		}
		if a.err != nil && !errors.Is(a.err, errSelf) {
			m.logOnce(unreached, a.addr, a.err)
		}
	}
	return nil
}

// Run finds the other nodes and has connect make links to them, also when they come back, until ctx
// is cancelled. Then it tells them that this node leaves, ends the links and closes m.
func (m *Mesh) Run(ctx context.Context, connect Linker) {
	m.mu.Lock()
	m.linker = connect
	m.mu.Unlock()
	for _, name := range m.names {
		m.work.Go(func() { m.followName(m.live, name) })
	}
	for ctx.Err() == nil {
		next := time.NewTimer(m.dialDue())
		select {
		case <-next.C:
		case <-m.woken:
		case <-ctx.Done():
		}
		next.Stop()
	}
	m.tellLeaving()
	m.Close()
}

const (
	// A Mesh decides whom to dial when a dial is due, when there is news, and at least every
	// mostTick, but not more often than every leastTick.
	leastTick = 20 * time.Millisecond
	mostTick  = time.Second
	// acceptPause is how long is waited when no connection can be accepted.
	acceptPause = 100 * time.Millisecond
	// leaveTime is how long the others have to take the news that this node leaves.
	leaveTime = time.Second
)

// dialDue dials who is due, and compares what it knows with one of the others. It returns when
// to look again.
func (m *Mesh) dialDue() time.Duration {
	if m.cfg.Store != nil && m.cfg.Store.Refresh() {
		m.showCert()
	}
	now := time.Now()
	m.mu.Lock()
	due := m.book.takeDue(now)
	with, ok := m.book.nextSync(now)
	var s *session
	if ok {
		s = m.sessions[with]
	}
	digest, quiet := m.book.digest, m.book.nextDue
	for _, n := range m.book.removed {
		if m.book.nodes[n] == nil && m.sessions[n] == nil {
			delete(m.peers, n)
		}
	}
	m.book.removed = nil
	m.mu.Unlock()
	if s != nil {
		s.queueNews(news{Digest: &digest})
	}
	for _, t := range due {
		m.work.Go(func() { m.reachTarget(m.live, t) })
	}
	return min(max(quiet.Sub(now), leastTick), mostTick)
}

// showCert shows all peers this node's certificate of now.
func (m *Mesh) showCert() {
	n := news{Cert: m.cfg.Store.Pair().Cert.Raw}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sessions {
		s.queueNews(n)
	}
}

// wakeRun has Run look.
func (m *Mesh) wakeRun() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// reachTarget dials a target, and serves the connection to its end.
func (m *Mesh) reachTarget(ctx context.Context, t target) {
	addr := t.endpoint.String()
	if t.seed >= 0 {
		m.mu.Lock()
		addr = m.seeds[t.seed]
		m.mu.Unlock()
	}
	m.count.Dials.Add(1)
	s, met, err := m.dialTarget(ctx, addr, t)
	if s != nil {
		if err = m.contestID(s.desc, s.endpoint); err == nil {
			err = m.registerSession(s)
		}
	}
	fine := err == nil || errors.Is(err, errSelf) || errors.Is(err, errTwice)
	m.mu.Lock()
	m.book.noteDialed(time.Now(), t, met.Node, fine)
	m.mu.Unlock()
	m.wakeRun()
	if !fine && ctx.Err() == nil {
		m.count.Failed.Add(1)
		m.tellFailed(addr, t, err)
	}
	switch {
	case s == nil:
	case err != nil:
		hangUp(s.conn)
	default:
		s.run(ctx)
	}
}

// dialTarget returns a session with a target, and who it is. Who has an address that was given is
// not known before: a node with which there is a session keeps that, and is asked only.
func (m *Mesh) dialTarget(ctx context.Context, addr string, t target) (*session, emp.Description, error) {
	if t.seed >= 0 && !m.isAlone() {
		_, met, err := m.dialMember(ctx, addr, hello{Kind: kindAsk})
		if err != nil || m.hasSession(met) {
			return nil, met, err
		}
	}
	return m.dialMember(ctx, addr, hello{Kind: kindControl, All: t.seed >= 0})
}

// isAlone reports whether there is no session.
func (m *Mesh) isAlone() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions) == 0
}

// hasSession reports whether there is a session with a node.
func (m *Mesh) hasSession(d emp.Description) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[d.Node]
	return s != nil && s.desc.Token == d.Token && !s.isOver()
}

// tellFailed tells why a node cannot be reached, if that is news.
func (m *Mesh) tellFailed(addr string, t target, err error) {
	m.mu.Lock()
	p := m.peers[t.node]
	if t.seed < 0 && p == nil && m.book.nodes[t.node] != nil { // else it was forgotten meanwhile
		p = &emp.Peer{Description: emp.Description{Node: t.node}, State: emp.Connecting, Since: time.Now(), Endpoint: t.endpoint}
		m.peers[t.node] = p
	}
	if t.seed < 0 && p != nil && p.State == emp.Connecting && saysMore(p.Err, err, t.endpoint) {
		p.Err = &failure{err, t.endpoint}
	}
	m.mu.Unlock()
	m.logOnce(unreached, addr, err)
}

// logOnce logs something about an address, unless it did so lately, or has logged too much.
func (m *Mesh) logOnce(what, addr string, err error) {
	const quiet, most = time.Hour, 256
	now, key := time.Now(), what+addr+err.Error()
	if errors.Is(err, identity.ErrTime) {
		key = what + addr + identity.ErrTime.Error() // the text has the time of day
	}
	m.mu.Lock()
	last, again := m.told[key]
	again = again && now.Sub(last) < quiet
	if !again && len(m.told) >= most {
		maps.DeleteFunc(m.told, func(_ string, at time.Time) bool { return now.Sub(at) >= quiet })
		again = len(m.told) >= most // so many: what is counted must do
	}
	if !again {
		m.told[key] = now
	}
	m.mu.Unlock()
	if !again {
		m.cfg.Log.Warn(what, "address", addr, "reason", err)
	}
}

// acceptConns takes connections until Close.
func (m *Mesh) acceptConns() {
	ctx := m.live
	defer ctxend.Do(ctx, func() { m.ln.Close() })()
	for {
		conn, err := m.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptors, say: it may pass
			m.logOnce("accepting connections", m.cfg.Listen, err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		m.count.Accepted.Add(1)
		from := addrPort(conn.RemoteAddr()).Addr()
		m.mu.Lock()
		ok := m.gate.takePlace(time.Now(), from)
		m.mu.Unlock()
		if !ok {
			m.count.Dropped.Add(1)
			conn.Close()
			continue
		}
		m.work.Go(func() { m.serveConn(ctx, conn, from) })
	}
}

// serveConn serves a connection of somebody to its end.
func (m *Mesh) serveConn(ctx context.Context, conn net.Conn, from netip.Addr) {
	greeted := ctxend.Do(ctx, func() { conn.Close() })
	serve, who, err := m.answerGreeting(conn)
	greeted()
	m.mu.Lock()
	m.gate.giveBack(time.Now(), from, who)
	m.mu.Unlock()
	if err != nil {
		conn.Close()
		if ctx.Err() == nil && !errors.Is(err, errSelf) && !errors.Is(err, errTwice) {
			m.count.Refused.Add(1)
			m.logOnce("refused", from.String(), err)
		}
		return
	}
	serve(ctx)
}

// tellLeaving tells all that this node leaves.
func (m *Mesh) tellLeaving() {
	m.mu.Lock()
	m.leaves = true // those that follow are told as well
	all := slices.Collect(maps.Values(m.sessions))
	m.mu.Unlock()
	for _, s := range all {
		s.queueNews(news{Leave: true})
	}
	deadline := time.After(leaveTime)
	for _, s := range all {
		select {
		case <-s.gone: // the peer ends it then
		case <-deadline:
			return
		}
	}
}

// Peers returns the nodes of other hosts, in the order of their IDs.
func (m *Mesh) Peers() []emp.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]emp.Peer, 0, len(m.peers))
	for _, p := range m.peers {
		if s := m.sessions[p.Node]; s == nil || !s.shared {
			all = append(all, *p)
		}
	}
	slices.SortFunc(all, func(a, b emp.Peer) int { return int(a.Node) - int(b.Node) })
	return all
}

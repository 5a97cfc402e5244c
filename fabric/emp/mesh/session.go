package mesh

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric/emp"
	"exnet/fabric/identity"
	"exnet/internal/ctxend"
)

// Times of a session. The link notices a peer that no longer answers (see stream); a session
// without a link does so itself.
const (
	beat = 2 * time.Second
	// Silent is how long nothing may be heard over the control connection of a node.
	Silent = 4 * beat
	// partTime is how long the data connections of a link may take.
	partTime = greetTime
	// maxQueue is how many messages may wait for a peer to read.
	maxQueue = 256
)

var (
	errSilent = fmt.Errorf("nothing heard of it for %v", Silent)
	errLeft   = errors.New("the peer has left")
)

// session is a control connection to a peer, with the link that belongs to it.
type session struct {
	m        *Mesh
	conn     net.Conn
	desc     emp.Description
	endpoint netip.AddrPort
	all      bool // the peer wants all rumors
	dialed   bool // by this side
	shared   bool // linked by the host's directory
	cookie   string
	// before is gone of the session before, with the same node; nil: there was none.
	before <-chan struct{}
	linked bool // it was; belongs to run

	// cert: nil: the peer has shown none.
	cert  atomic.Pointer[x509.Certificate]
	heard atomic.Int64  // when something came last, in nanoseconds
	over  chan struct{} // closed by end
	gone  chan struct{} // closed when the link, OnRequest, OnUnlinked and OnLeft have ended, too
	parts parts         // data connections of the peer

	mu    sync.Mutex
	queue []news // +checklocks:mu
	ended bool   // +checklocks:mu
	cause error  // +checklocks:mu
	// asked is who waits for an answer, by the ID of the request.
	asked map[uint64]chan []byte // +checklocks:mu
	more  chan struct{}

	groups []netip.Addr // guarded by m.mu
}

func (m *Mesh) newSession(conn net.Conn, h hello, p *identity.Peer, endpoint netip.AddrPort) *session {
	s := &session{
		m: m, conn: conn, desc: h.Self, endpoint: endpoint, all: h.All,
		over: make(chan struct{}), gone: make(chan struct{}), parts: newParts(), more: make(chan struct{}, 1),
		asked: make(map[uint64]chan []byte),
	}
	if p != nil {
		s.cert.Store(p.Cert)
	}
	s.heard.Store(time.Now().UnixNano())
	return s
}

// registerSession makes s the session with its peer, unless another one stays: that which the
// node with the higher ID has dialed.
func (m *Mesh) registerSession(s *session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.sessions[s.desc.Node]
	if old != nil && old.desc.Token == s.desc.Token && old.dialed != s.dialed && old.dialed == (m.cfg.Self.Node > s.desc.Node) && !old.isOver() {
		return errTwice
	}
	if old != nil {
		s.before = old.gone
		old.end(errors.New("the peer has reconnected"))
	}
	now := time.Now()
	m.sessions[s.desc.Node] = s
	if !s.dialed {
		m.cookies[s.cookie] = s
	}
	m.book.noteConnected(now, Rumor{Node: s.desc.Node, Token: s.desc.Token, Since: s.desc.Since.UnixNano(), Endpoint: s.endpoint})
	p := m.peers[s.desc.Node]
	if p == nil {
		p = new(emp.Peer)
		m.peers[s.desc.Node] = p
	}
	if p.Token != s.desc.Token {
		p.Links, p.Err = 0, nil
	}
	p.Description, p.State, p.Since, p.Endpoint = s.desc, emp.Linking, now, s.endpoint
	if s.desc.MTU != m.cfg.Self.MTU && old == nil {
		m.cfg.Log.Warn("MTUs differ: packets larger than the receiver's may be lost", "node", s.desc.Node, "mtu", s.desc.MTU, "here", m.cfg.Self.MTU)
	}
	if c := s.cert.Load(); c != nil {
		p.Key = identity.Fingerprint(c)
	}
	if s.nextGeneration() > 0 { // which may have changed since the handshake
		s.queueNews(news{Cert: m.cfg.Store.Pair().Cert.Raw})
	}
	s.queueNews(m.groupsLocked())
	if s.all {
		m.tellAllLocked(s, false)
	}
	if m.leaves {
		s.queueNews(news{Leave: true})
	}
	m.count.Sessions.Add(1)
	return nil
}

// tellAllLocked tells a peer of all others, and asks it for the same.
//
// +checklocks:m.mu
func (m *Mesh) tellAllLocked(s *session, reply bool) {
	all := m.book.rumors()
	for len(all) > maxRumors {
		s.queueNews(news{Rumors: all[:maxRumors]})
		all = all[maxRumors:]
	}
	s.queueNews(news{Rumors: all, Reply: reply})
}

// queueNews queues a message. It does not wait.
func (s *session) queueNews(n news) {
	s.mu.Lock()
	s.queue = append(s.queue, n)
	full := len(s.queue) > maxQueue
	s.mu.Unlock()
	if full {
		s.end(errors.New("the peer does not read"))
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// end ends the session, for a reason. Only the first one counts.
func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		if why == nil {
			why = errors.New("the link has ended")
		}
		s.ended, s.cause = true, why
		close(s.over)
		hangUp(s.conn)
	}
}

// hangUp closes a connection without another word: that of package tls may have to wait.
func hangUp(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
}

func (s *session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// why says why the session has ended.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// isAlive asks the peer for a sign of life, and waits for one.
func (s *session) isAlive(wait time.Duration) bool {
	asked := s.heard.Load()
	s.queueNews(news{Probe: true})
	end := time.After(wait)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-s.over:
			return false
		case <-end:
			return false
		case <-look.C:
			if s.heard.Load() != asked {
				return true
			}
		}
	}
}

// run serves a registered session to its end.
func (s *session) run(ctx context.Context) {
	defer ctxend.Do(ctx, func() { s.end(context.Cause(ctx)) })()
	var work sync.WaitGroup
	work.Go(s.writeQueued)
	work.Go(s.readNews)
	s.awaitFormer()
	link, err := s.makeLink(ctx)
	switch {
	case err != nil:
		s.end(err)
	case link != nil:
		s.linked = true
		s.setState(emp.Up, link)
		s.m.cfg.Log.Info("linked", "node", s.desc.Node, "address", s.endpoint, "authenticated", s.cert.Load() != nil)
		select {
		case <-link.Done():
			s.end(link.Err())
		case <-s.over:
		}
		_ = link.Close() // why it ended is told
		<-link.Done()
	default:
		<-s.over
	}
	work.Wait()
	s.forgetSession(ctx.Err() == nil)
	close(s.gone)
}

// awaitFormer waits until the session before is gone: a node has one link and one OnRequest at a
// time, and OnUnlinked is told of the last link first.
func (s *session) awaitFormer() {
	if s.before != nil {
		<-s.before
	}
}

// setState notes a state of the peer.
func (s *session) setState(state emp.State, l emp.Link) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if p := s.m.peers[s.desc.Node]; p != nil && s.m.sessions[s.desc.Node] == s {
		p.State, p.Since, p.Link = state, time.Now(), l
		p.Links++
		p.Err = nil
	}
}

// forgetSession takes the session out, and tells of its end if that is worth it.
func (s *session) forgetSession(tell bool) {
	m, why := s.m, s.why()
	left := errors.Is(why, errLeft)
	// The next session waits for both while this one is there.
	if s.linked {
		m.cfg.OnUnlinked(s.desc.Node)
	}
	if left {
		m.cfg.OnLeft(s.desc.Node)
	}
	m.mu.Lock()
	if !s.dialed {
		delete(m.cookies, s.cookie)
	}
	last := m.sessions[s.desc.Node] == s
	if last {
		delete(m.sessions, s.desc.Node)
		now := time.Now()
		p := m.peers[s.desc.Node]
		p.State, p.Since, p.Link, p.Err = emp.Connecting, now, nil, why
		if left {
			m.book.noteLeaving(now, s.desc.Node)
			delete(m.peers, s.desc.Node)
		} else {
			m.book.noteDown(now, s.desc.Node)
		}
	}
	m.mu.Unlock()
	if !last {
		return
	}
	m.cfg.OnGroups()
	switch {
	case left:
		m.cfg.Log.Info("left", "node", s.desc.Node)
	case tell && s.linked:
		m.count.Lost.Add(1)
		m.cfg.Log.Warn("no link any more", "node", s.desc.Node, "address", s.endpoint, "reason", withoutPorts(why))
	case tell:
		m.count.Lost.Add(1)
		m.logOnce("no link", s.endpoint.String(), withoutPorts(why)) // which may be so repeatedly
	}
	m.wakeRun()
}

// writeQueued sends what is queued, and signs of life.
func (s *session) writeQueued() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	generation, last := s.nextGeneration(), time.Now()
	for {
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, n := range queue {
			if err := s.sendNews(n); err != nil {
				s.end(err)
				return
			}
			if n.Leave {
				return // the peer ends it
			}
		}
		select {
		case <-s.over:
			return
		case <-s.more:
			continue
		case <-tick.C:
		}
		now := time.Now()
		if late := now.Sub(last) - beat; late > beat {
			s.forgiveLate(late, now)
		}
		last = now
		if now.Sub(time.Unix(0, s.heard.Load())) > Silent {
			s.end(errSilent)
			return
		}
		if err := s.checkBelieved(&generation); err != nil {
			s.end(err)
			return
		}
		s.queueNews(news{})
	}
}

// forgiveLate notes that nobody could be heard for a time, as this side had no CPU.
func (s *session) forgiveLate(late time.Duration, now time.Time) {
	heard := s.heard.Load()
	s.heard.CompareAndSwap(heard, min(heard+int64(late), max(heard, now.UnixNano()))) // else something has come
}

func (s *session) sendNews(n news) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(Silent)); err != nil {
		return err
	}
	return sendMessage(s.conn, n)
}

func (s *session) nextGeneration() uint64 {
	if s.m.cfg.Store == nil {
		return 0
	}
	return s.m.cfg.Store.Generation()
}

// checkBelieved says why the peer's certificate is not believed any more: its time has
// come, or the trust file has changed.
func (s *session) checkBelieved(generation *uint64) error {
	c := s.cert.Load()
	if c == nil {
		return nil
	}
	g := s.nextGeneration()
	if g == *generation && s.m.cfg.Store.Now().Before(c.NotAfter) {
		return nil
	}
	*generation = g
	return s.m.cfg.Store.Check(c)
}

// takeRenewed takes the peer's new certificate. If that is not believed nothing changes: the one
// shown before counts until it ends.
func (s *session) takeRenewed(der []byte) {
	old := s.cert.Load()
	if old == nil {
		return
	}
	c, err := s.m.cfg.Store.Renewed(old, der)
	if err != nil {
		s.m.logOnce("a renewed certificate is not believed", s.endpoint.String(), err)
		return
	}
	s.cert.Store(c)
	s.m.cfg.Log.Info("certificate renewed", "node", s.desc.Node, "until", c.NotAfter)
}

// readNews handles what the peer says.
func (s *session) readNews() {
	var work budget
	for {
		var n news
		text, err := receiveText(s.conn, maxMessage)
		begun := time.Now()
		if err == nil {
			err = parseMessage(text, &n)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
				err = errors.New("the peer has closed the connection")
			}
			s.end(err)
			return
		}
		s.heard.Store(time.Now().UnixNano())
		if n.Leave {
			s.end(errLeft)
			return
		}
		s.handleNews(n)
		if err := s.handleParcel(n); err != nil {
			s.end(err)
			return
		}
		if wait := work.spendTime(time.Now(), time.Since(begun)); wait > 0 {
			select {
			case <-time.After(wait): // meanwhile the peer cannot send any more
			case <-s.over:
			}
		}
	}
}

// budget bounds the time that one peer's messages may take: a quarter of the time, and workBurst at
// once.
type budget struct{ due time.Time }

const (
	workShare = 4
	workBurst = time.Second
	// workPause bounds a pause: signs of life are to be heard.
	workPause = Silent / 4
)

// spendTime notes what a message has taken, and returns how long to wait before the next one.
func (b *budget) spendTime(now time.Time, took time.Duration) time.Duration {
	if b.due.Before(now) {
		b.due = now
	}
	b.due = b.due.Add(workShare * took)
	wait := min(max(0, b.due.Sub(now)-workBurst), workPause)
	if most := now.Add(workBurst + workPause); b.due.After(most) { // this process had no CPU, say
		b.due = most
	}
	return wait
}

func (s *session) handleNews(n news) {
	m := s.m
	m.mu.Lock()
	learned := m.book.learnRumors(time.Now(), s.desc.Node, n.Rumors)
	if n.Reply || n.Digest != nil && *n.Digest != m.book.digest {
		m.tellAllLocked(s, !n.Reply)
	}
	if n.Groups != nil {
		s.groups = (*n.Groups)[:min(len(*n.Groups), maxGroups)]
	}
	m.count.RumorsIgnored.Store(m.book.ignored)
	m.mu.Unlock()
	if n.Probe {
		s.queueNews(news{})
	}
	if n.Cert != nil {
		s.takeRenewed(n.Cert)
	}
	if n.Rival != nil {
		m.logOnce("another node has this node's ID", n.Rival.String(), errTaken(m.cfg.Self.Node, n.Rival.String()))
	}
	if n.Groups != nil {
		m.cfg.OnGroups()
	}
	if learned {
		m.wakeRun()
	}
}

package attach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/link/attach/wire"
	"exnet/foreign"
	"exnet/internal/shm"
)

// port is a port of this program at its node.
type port struct {
	link *Link
	unit wire.Unit
	vpid fabric.VPID
	node fabric.NodeID
	conn *net.UnixConn
	bell *os.File
	page *shm.Foreign
	// table: of an RMA port, or nil.
	table *shm.Foreign
	in    atomic.Pointer[[]*inflow] // a slice is not changed

	polling atomic.Bool   // somebody reads the flows
	again   atomic.Bool   // somebody else wanted to
	moved   atomic.Uint64 // messages, out of all flows

	asking sync.Mutex // one request at a time
	number uint32     // guarded by asking

	mu sync.Mutex
	// answers has whoever waits for an answer.
	answers map[uint32]chan answer  // +checklocks:mu
	grants  map[wire.Addr]*grant    // +checklocks:mu
	absent  map[wire.Addr]time.Time // +checklocks:mu
	state   portState               // +checklocks:mu
}

// portState is how far the life of a port is.
type portState uint8

const (
	portOpen portState = iota
	portCut            // the node has ended: what has arrived is moved still
	portShut           // its endpoint has closed: the VPID may be a successor's, to which nothing is moved
)

// answer is what a node says to a request.
type answer struct {
	wire.Message
	grant *grant // of a connect that was granted
	err   error
}

// trusted says whether the process at the other end is root's or this user's.
func trusted(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr == nil && cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("attach: the node is user %d's: %w", cred.Uid, fabric.ErrNoRoute)
	}
	return credErr
}

// openPort opens a port. The VPID 0 is any.
func (l *Link) openPort(k key) (_ *port, err error) {
	conn, err := dialNode(l.socket)
	if err != nil {
		return nil, err
	}
	p := &port{
		link: l, unit: k.unit, vpid: k.vpid, conn: conn,
		answers: make(map[uint32]chan answer), grants: make(map[wire.Addr]*grant), absent: make(map[wire.Addr]time.Time),
	}
	p.in.Store(new([]*inflow))
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	var send []int
	if k.unit == fabric.UnitRMA {
		fd := l.arena.Fd()
		if fd < 0 {
			return nil, fmt.Errorf("attach: open: %w", fabric.ErrClosed)
		}
		send = []int{fd}
	}
	if err := p.send(wire.Message{Op: wire.OpOpen, Unit: k.unit, A: wire.Version, B: uint64(k.vpid)}, send...); err != nil {
		return nil, err
	}
	m, fds, err := p.receive()
	defer closeAll(fds)
	if err == nil {
		err = errorOf(m.Status)
	}
	if err != nil {
		return nil, err
	}
	if m.Op != wire.OpOpen || len(fds) < 2 || k.unit == fabric.UnitRMA && len(fds) < 4 {
		return nil, fmt.Errorf("attach: open: %w", wire.ErrMessage)
	}
	p.vpid, p.node = m.Addr.VPID, m.Addr.Node
	if p.page, err = shm.MapShared(fds[0], wire.PageSize, wire.PageSize, unix.F_SEAL_SHRINK, true); err != nil {
		return nil, err
	}
	if k.unit == fabric.UnitRMA {
		if p.table, err = shm.MapShared(fds[3], wire.TableSize, wire.TableSize, unix.F_SEAL_SHRINK, true); err != nil {
			return nil, err
		}
	}
	p.bell = os.NewFile(uintptr(fds[1]), "bell")
	fds[1] = -1
	return p, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (p *port) send(m wire.Message, fds ...int) error {
	b, _ := m.AppendBinary(nil) // it does not fail
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := p.conn.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("attach: the node has ended: %w: %w", fabric.ErrPeerDown, err)
	}
	return nil
}

// receive waits for a message. The descriptors are the caller's, whatever the error is. One that
// wraps ErrAgain says that some are lost; the message is good.
func (p *port) receive() (m wire.Message, fds []int, err error) {
	b := make([]byte, wire.MessageSize+1)
	oob := make([]byte, unix.CmsgSpace(4*wire.Descriptors))
	n, oobn, flags, _, err := p.conn.ReadMsgUnix(b, oob)
	if err != nil {
		return m, nil, fmt.Errorf("attach: the node has ended: %w: %w", fabric.ErrPeerDown, err)
	}
	if oobn > 0 {
		var all []unix.SocketControlMessage
		if all, err = unix.ParseSocketControlMessage(oob[:oobn]); err != nil {
			return m, nil, err
		}
		for i := range all {
			more, err := unix.ParseUnixRights(&all[i])
			if err == nil {
				fds = append(fds, more...)
			}
		}
	}
	if err = m.UnmarshalBinary(b[:n]); err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("attach: no room for descriptors: raise the limit of open files: %w", fabric.ErrAgain)
	}
	return m, fds, err
}

// addCount adds to a counter of the port, which the node shows.
func (p *port) addCount(c int, n uint64) {
	p.page.Memory().Words(wire.Counters+8*c, 1)[0].Add(n)
}

// request sends a request and waits for the answer.
func (p *port) request(m wire.Message) (answer, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.number++
	m.Number = p.number
	c := make(chan answer, 1)
	p.mu.Lock()
	if p.state != portOpen {
		p.mu.Unlock()
		return answer{}, errDown
	}
	p.answers[m.Number] = c
	p.mu.Unlock()
	if err := p.send(m); err != nil {
		return answer{}, err
	}
	a, ok := <-c
	if !ok {
		return answer{}, errDown
	}
	return a, a.err
}

// connect returns the grant of a peer.
func (p *port) connect(to wire.Addr) (*grant, error) {
	p.mu.Lock()
	g := p.grants[to]
	p.mu.Unlock()
	if g != nil {
		return g, nil
	}
	a, err := p.request(wire.Message{Op: wire.OpConnect, Addr: to, Unit: p.unit})
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(err, errNoPort) {
		p.absent[to] = time.Now()
	} else {
		delete(p.absent, to)
	}
	return a.grant, err
}

// missing says whether nobody had opened the VPID of a peer a moment ago.
func (p *port) missing(to wire.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.absent[to]
	return ok && time.Since(at) < believed
}

// read handles what the node sends until the port ends.
func (p *port) read() {
	defer p.endAs(portCut)
	for {
		m, fds, err := p.receive()
		lacks := errors.Is(err, fabric.ErrAgain)
		if err == nil || lacks {
			p.handleMessage(m, fds, lacks)
		}
		closeAll(fds)
		if err != nil && !lacks {
			return
		}
	}
}

// errLost is the end of a request whose answer has lost descriptors. It wraps no ErrAgain, of which
// callers expect to be told when to try again.
var errLost = fmt.Errorf("attach: no room for descriptors: raise the limit of open files: %w", fabric.ErrPeerDown)

// handleMessage handles a message, of which descriptors are lost if it lacks some. Those that it
// keeps become -1.
func (p *port) handleMessage(m wire.Message, fds []int, lacks bool) {
	switch m.Op {
	case wire.OpFlow:
		if len(fds) > 0 {
			p.addFlow(m.Addr, fds[0]) // without memory for it the peer is one that is not heard
		}
	case wire.OpGone:
		p.peerGone(m.Addr)
	default:
		a := answer{Message: m, err: errorOf(m.Status)}
		if lacks && a.err == nil {
			a.err = errLost
		}
		if m.Op == wire.OpConnect && a.err == nil {
			a.grant, a.err = p.newGrant(m, fds)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.grant != nil { // here, since the next message may be that the peer has ended
			p.grants[m.Addr] = a.grant
		}
		if c := p.answers[m.Number]; c != nil {
			delete(p.answers, m.Number)
			c <- a
		}
	}
}

// addFlow adds the flow of a peer.
func (p *port) addFlow(from wire.Addr, fd int) {
	n, size := wire.Slots(p.unit)
	mem, err := shm.MapShared(fd, wire.FlowHeader+n*size, wire.FlowHeader+n*size, unix.F_SEAL_SHRINK, true)
	if err != nil {
		return
	}
	f := newInflow(p, from, mem, n, size)
	f.armBell()
	p.replaceFlows(func(list []*inflow) []*inflow { return append(list, f) })
	go p.poll() // a handler may ask the node something
}

// replaceFlows makes a new list of the flows.
func (p *port) replaceFlows(f func([]*inflow) []*inflow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := f(slices.Clone(*p.in.Load()))
	p.in.Store(&list)
}

// peerGone ends what there was with a peer, after what it has sent.
func (p *port) peerGone(a wire.Addr) {
	p.mu.Lock()
	g := p.grants[a]
	delete(p.grants, a)
	p.mu.Unlock()
	for _, f := range *p.in.Load() {
		if f.from == a {
			f.gone.Store(true)
		}
	}
	if g != nil {
		g.end()
	}
	go p.poll() // a handler may ask the node something
}

// endAs has whoever waits know that the port has ended.
func (p *port) endAs(s portState) {
	p.mu.Lock()
	p.state = max(p.state, s)
	for _, c := range p.answers {
		close(c)
	}
	clear(p.answers)
	all := p.grants
	p.grants = make(map[wire.Addr]*grant)
	p.mu.Unlock()
	for _, g := range all {
		g.end()
	}
}

// close ends the port at the node. Its goroutines end by that.
func (p *port) close() {
	_ = p.conn.Close()
	if p.bell != nil {
		_ = p.bell.Close()
	}
	p.endAs(portShut)
}

// isOurs reports whether the endpoint that has the VPID, or had it a moment ago, is the port's: a
// successor opens after close. Call it after the endpoint was found, and before it gets anything.
func (p *port) isOurs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state != portShut
}

// listen polls when the bell rings. Where it rings late, for what somebody has moved before the
// port was armed, nobody is told, and the port is armed again: else nobody would ring for the next
// message.
func (p *port) listen() {
	b := make([]byte, 64)
	for {
		if _, err := p.bell.Read(b); err != nil {
			return
		}
		before := p.moved.Load()
		p.poll()
		if p.moved.Load() == before {
			p.armBell()
		}
	}
}

// armBell has the bell ring for what arrives from now on, and for what has arrived.
func (p *port) armBell() {
	ready := false
	for _, f := range *p.in.Load() {
		f.armBell()
		ready = f.ready() || ready
	}
	if ready {
		go p.poll() // no handler may run in this goroutine
	}
}

// poll moves what has arrived to its place. One goroutine does it at a time.
func (p *port) poll() {
	for {
		if !p.polling.CompareAndSwap(false, true) {
			p.again.Store(true)
			if !p.polling.CompareAndSwap(false, true) {
				return // the goroutine that polls looks again
			}
		}
		p.again.Store(false)
		p.drainFlows()
		p.polling.Store(false)
		if !p.again.Load() {
			return
		}
	}
}

// drainFlows is poll's.
func (p *port) drainFlows() {
	for _, f := range *p.in.Load() {
		if f.drainMessages() {
			if f.target != nil {
				link.End(f.target)
			}
			p.replaceFlows(func(list []*inflow) []*inflow {
				return slices.DeleteFunc(list, func(o *inflow) bool { return o == f })
			})
		}
	}
}

// words are the counters of a flow that are words by themselves.
func words(m foreign.Memory, off int) *atomic.Uint64 { return &m.Words(off, 1)[0] }

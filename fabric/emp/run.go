package emp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/internal/ctxend"
	"exnet/node/rpc"
)

// secondLook is how long after a change the directory is scanned again: inotify reports
// a dying node's file as closed before the kernel releases its lock.
const secondLook = 50 * time.Millisecond

// scanRest is the pause after a scan, as a multiple of the scan's duration, but at most
// secondLook. A scan reads the files of all nodes, and each node that comes or goes makes
// all others scan. Without a pause, many nodes that start at once would do little else.
const scanRest = 4

// Run links this node with every other one, and again when they come back, until
// ctx is cancelled. Then it leaves the fabric, closes the links and returns nil.
func (m *Member) Run(ctx context.Context, connect Linker) (err error) {
	w, err := watchDir(m.dir.path)
	if err != nil {
		return errors.Join(err, m.Leave())
	}
	var work sync.WaitGroup
	// Peers outlive ctx until nobody finds this node any more.
	peers, stop := context.WithCancel(context.WithoutCancel(ctx))
	scan := make(chan chan struct{})
	work.Go(func() { m.acceptConns(peers, scan) })

	again, rest := time.NewTimer(0), time.NewTimer(0)
	defer again.Stop()
	defer rest.Stop()
	changes := w.changes // nil during the pause
	look := func() (settled bool) {
		start := time.Now()
		settled = m.scanDir(peers, connect)
		m.syncGroups()
		changes = nil
		rest.Reset(min(scanRest*time.Since(start), secondLook))
		return settled
	}
	for ctx.Err() == nil {
		select {
		case _, ok := <-changes:
			if !ok {
				w.changes = nil
			}
			look()
			again.Reset(secondLook)
		case <-rest.C:
			changes = w.changes
		case <-again.C:
			if !look() {
				again.Reset(secondLook)
			}
		case <-m.wished:
			m.syncGroups()
		case done := <-scan:
			m.scanDir(peers, connect)
			close(done)
		case <-ctx.Done():
		}
	}
	err = m.Leave()
	stop()
	w.close()
	work.Wait()
	m.mu.Lock()
	last := m.peers
	m.peers = make(map[fabric.NodeID]*peer)
	m.mu.Unlock()
	for _, p := range last {
		<-p.done
	}
	return err
}

// scanDir compares the directory with the peers, and reports whether the peers that are
// gone have ended. Only Run's goroutine calls it.
func (m *Member) scanDir(ctx context.Context, connect Linker) (settled bool) {
	alive, dead, err := m.dir.listNodes()
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return false // a node whose description was not read is not gone
	}
	if err != nil {
		m.log.Warn("a node cannot be linked", "reason", err)
	}
	if len(dead) > 0 {
		if lock, err := m.dir.lock(); err == nil {
			reaped, err := m.dir.reap()
			lock.Close()
			if err != nil {
				m.log.Warn("cannot remove the files of a dead node", "reason", err)
			}
			for _, n := range reaped {
				m.log.Info("removed the files of a dead node", "node", n)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := make(map[fabric.NodeID]bool, len(alive))
	for _, desc := range alive {
		if desc.Node == m.self.Node {
			continue
		}
		seen[desc.Node] = true
		old := m.peers[desc.Node]
		if old == nil || old.desc.Token != desc.Token || old.gone {
			m.log.Info("found", "node", desc.Node, "addrs", desc.Addrs)
			if desc.MTU != m.self.MTU {
				m.log.Warn("MTUs differ: packets larger than the receiver's may be lost", "node", desc.Node, "mtu", desc.MTU, "here", m.self.MTU)
			}
			m.peers[desc.Node] = m.startPeer(ctx, desc, old, connect)
		}
	}
	settled = true
	for n, p := range m.peers {
		if seen[n] {
			continue
		}
		p.gone = true
		p.stop()
		select {
		case <-p.done:
			m.log.Info("gone", "node", n)
			delete(m.peers, n)
		default: // kept, so that one that comes back waits for it
			settled = false
		}
	}
	return settled
}

// maxTaken is how many connections of one user may be on their way to their peers.
const maxTaken = 1024

// acceptConns takes connections until Leave.
func (m *Member) acceptConns(ctx context.Context, scan chan<- chan struct{}) {
	var work sync.WaitGroup
	defer work.Wait()
	failed := func(err error) { m.log.Warn("cannot accept a connection", "reason", err) }
	gate := rpc.NewGate(maxTaken)
	for conn := range rpc.Accept(ctx, m.ln, secondLook, failed) {
		leave, err := gate.Enter(conn)
		if err != nil {
			conn.Close()
			continue
		}
		work.Go(func() {
			defer leave()
			m.passConn(ctx, conn, scan)
		})
	}
}

// passConn passes a connection to the peer that opened it.
func (m *Member) passConn(ctx context.Context, conn *net.UnixConn, scan chan<- chan struct{}) {
	defer ctxend.Do(ctx, func() { conn.Close() })()
	p, err := m.answerHello(conn, func() {
		done := make(chan struct{})
		select {
		case scan <- done:
			<-done
		case <-ctx.Done():
		}
	})
	if err != nil {
		if !errors.Is(err, io.EOF) { // EOF: the peer closed the connection
			m.log.Warn("connection refused", "reason", err)
		}
		conn.Close()
		return
	}
	select {
	case p.incoming <- conn:
	case <-p.done:
		conn.Close()
	case <-ctx.Done():
		conn.Close()
	}
}

func sortPeers(peers []Peer) {
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.Node, b.Node) })
}

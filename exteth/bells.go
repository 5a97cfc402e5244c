package exteth

import "sync/atomic"

// bells lists the peers whose mailboxes got messages without an interrupt. They are
// interrupted once for all posted frames, and after tx is released, because a receiver
// may run in this goroutine and send.
type bells struct {
	waiting atomic.Int32
	peers   []*peer // guarded by tx
}

// addPeer lists a peer. The caller holds tx.
func (b *bells) addPeer(pr *peer) {
	if pr.bell {
		return
	}
	pr.bell = true
	b.peers = append(b.peers, pr)
	b.waiting.Add(1)
}

// takePeer removes and returns a peer, or nil if there is none. The caller holds tx.
func (b *bells) takePeer() *peer {
	n := len(b.peers)
	if n == 0 {
		return nil
	}
	pr := b.peers[n-1]
	b.peers = b.peers[:n-1]
	b.waiting.Add(-1)
	pr.bell = false
	return pr
}

// Flush interrupts the peers that frames were posted to.
func (p *Port) Flush() {
	for p.bells.waiting.Load() > 0 {
		p.tx.Lock()
		pr := p.bells.takePeer()
		p.unlockTx()
		if pr != nil {
			p.velo.Interrupt(pr.node, p.cfg.VPID)
		}
	}
}

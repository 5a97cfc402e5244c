package exteth

import "sync/atomic"

// bells are the peers that messages were put into the mailboxes of without an
// interrupt. They are interrupted after tx is given up, because a receiver may
// run in this goroutine and send in its turn, and only once for all frames at
// hand.
type bells struct {
	waiting atomic.Int32
	peers   []*peer // guarded by tx
}

// add notes a peer. The caller holds tx.
func (b *bells) add(pr *peer) {
	if pr.bell {
		return
	}
	pr.bell = true
	b.peers = append(b.peers, pr)
	b.waiting.Add(1)
}

// next takes out a peer. The caller holds tx.
func (b *bells) next() *peer {
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
		pr := p.bells.next()
		p.unlockTx()
		if pr != nil {
			p.velo.Interrupt(pr.node, p.cfg.VPID)
		}
	}
}

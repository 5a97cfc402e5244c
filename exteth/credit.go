package exteth

import (
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// credited are the nodes that Config.OnCredit is still to be called for. The
// fabric may call its handler while tx is held, in the very goroutine that
// holds it (a send that finds no credit may end somebody else's wait), and
// OnCredit wants to send.
type credited struct {
	waiting atomic.Bool
	mu      sync.Mutex
	nodes   []fabric.NodeID // guarded by mu
	spare   []fabric.NodeID // guarded by mu; for the next list
}

// onCredit has Config.OnCredit called, by whoever holds tx when that is given
// up, or else here.
func (p *Port) onCredit(n fabric.NodeID) {
	c := &p.credited
	c.mu.Lock()
	c.nodes = append(c.nodes, n)
	c.waiting.Store(true)
	c.mu.Unlock()
	if p.tx.TryLock() {
		p.unlockTx() // +checklocksforce: TryLock
	}
	// Otherwise the holder looks at waiting after it has given up tx, and so
	// after the store above.
}

// unlockTx gives up tx and makes the calls that came up meanwhile.
//
// +checklocksrelease:p.tx
func (p *Port) unlockTx() {
	p.tx.Unlock()
	c := &p.credited
	if !c.waiting.Load() {
		return
	}
	c.mu.Lock()
	c.waiting.Store(false)
	nodes := c.nodes
	c.nodes, c.spare = c.spare[:0], nil
	c.mu.Unlock()
	for _, n := range nodes {
		p.cfg.OnCredit(n)
	}
	c.mu.Lock()
	c.spare = nodes[:0]
	c.mu.Unlock()
}

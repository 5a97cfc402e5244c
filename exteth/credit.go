package exteth

import (
	"sync"
	"sync/atomic"

	"exnet/fabric"
)

// credited lists the nodes that Config.OnCredit must still be called for. The
// fabric may call onCredit in the goroutine that holds tx (a send that finds no
// credit may end another sender's wait), but OnCredit sends, and so takes tx.
type credited struct {
	waiting atomic.Bool
	mu      sync.Mutex
	nodes   []fabric.NodeID // guarded by mu
	spare   []fabric.NodeID // guarded by mu; for the next list
}

// onCredit calls Config.OnCredit here, or leaves the call to the holder of tx, who
// makes it after releasing tx.
func (p *Port) onCredit(n fabric.NodeID) {
	c := &p.credited
	c.mu.Lock()
	c.nodes = append(c.nodes, n)
	c.waiting.Store(true)
	c.mu.Unlock()
	if p.tx.TryLock() {
		p.unlockTx() // +checklocksforce: TryLock
	}
	// Otherwise the holder reads waiting after it has released tx, and so after the
	// store above.
}

// unlockTx releases tx and makes the calls of OnCredit that became due meanwhile.
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

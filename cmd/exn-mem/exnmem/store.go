package exnmem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exnet/fabric"
	"exnet/memory"
	"exnet/memory/pager"
	"exnet/memory/spill"
)

// lenders is memory of other nodes, of which one after the other lends some.
type lenders struct{ *spill.Store }

// WriteAt implements pager.Store.
func (l lenders) WriteAt(p []byte, off int64) (int, error) {
	n, err := l.Store.WriteAt(p, off)
	if errors.Is(err, spill.ErrFull) {
		err = fmt.Errorf("%w: %w", pager.ErrFull, err)
	}
	return n, err
}

// openStore borrows memory for what has no room here, or with --control takes it from this process.
func openStore(ctx context.Context, o options) (pager.Store, error) {
	if o.control {
		return pager.Memory(int64(o.remote)), nil
	}
	whole := func(n int) int64 { return int64(n) &^ (memory.PageSize - 1) }
	c := spill.Config{Size: whole(o.remote), Step: whole(o.step)}
	if o.node != noNode {
		node := fabric.NodeID(o.node)
		c.Base.Node = &node
	}
	s, err := spill.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("--remote: %w", err)
	}
	return lenders{s}, nil
}

// lookTime is how often it is decided whether to borrow more, or to give back.
const lookTime = 100 * time.Millisecond

// followLoad borrows and gives back as the load of the program changes, until stop is closed.
func (l lenders) followLoad(local int64, g *pager.Pager, stop <-chan struct{}) {
	w := spill.Watch{Policy: spill.DefaultPolicy()}
	t := time.NewTicker(lookTime)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-t.C:
			c := g.Counts()
			borrowed, smallest := l.Borrowed()
			load := spill.Load{
				Used: int64(c.Here)*memory.PageSize + l.Used(), Room: local + borrowed,
				Smallest: smallest, Faults: c.Fetched,
			}
			switch w.Look(now, load) {
			case spill.Spill:
				_ = l.Spill() // a page that finds no room asks again
			case spill.Release:
				_ = l.Release() // or it stays
			case spill.Stay:
			}
		}
	}
}

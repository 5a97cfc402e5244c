package exnmem

import (
	"context"
	"fmt"

	"exnet/fabric"
	"exnet/internal/pager"
	"exnet/memory"
)

// openStore borrows memory for what has no room here, or with --control takes it from this process.
func openStore(ctx context.Context, o options) (pager.Store, error) {
	if o.control {
		return pager.Memory(int64(o.remote)), nil
	}
	c := memory.Config{Size: int64(o.remote) &^ (memory.PageSize - 1)}
	if o.node != noNode {
		node := fabric.NodeID(o.node)
		c.Node = &node
	}
	s, err := memory.Borrow(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("--remote: %w", err)
	}
	return s, nil
}

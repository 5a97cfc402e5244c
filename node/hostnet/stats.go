package hostnet

import (
	"github.com/vishvananda/netlink"

	"exnet/internal/counter"
)

// Stats returns the counters of the interface with that index.
func (c *Conn) Stats(index int) (s counter.Interface, err error) {
	err = c.withHandle(func(h *netlink.Handle) error {
		link, err := h.LinkByIndex(index)
		if err != nil {
			return linkError(index, err)
		}
		n := link.Attrs().Statistics
		if n == nil {
			return nil // the kernel did not say
		}
		s = counter.Interface{
			RxPackets: n.RxPackets, RxBytes: n.RxBytes, RxErrors: n.RxErrors, RxDropped: n.RxDropped,
			RxOverruns: n.RxFifoErrors, RxFrame: n.RxFrameErrors,
			TxPackets: n.TxPackets, TxBytes: n.TxBytes, TxErrors: n.TxErrors, TxDropped: n.TxDropped,
			TxOverruns: n.TxFifoErrors, TxCarrier: n.TxCarrierErrors, Collisions: n.Collisions,
		}
		return nil
	})
	return s, err
}

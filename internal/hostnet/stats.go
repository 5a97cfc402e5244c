package hostnet

import (
	"github.com/vishvananda/netlink"
)

// LinkStats are the kernel's counters of an interface, as ifconfig shows them.
// RX enters the host, TX leaves it.
type LinkStats struct {
	RxPackets  uint64 `json:"rx_packets"`
	RxBytes    uint64 `json:"rx_bytes"`
	RxErrors   uint64 `json:"rx_errors"`
	RxDropped  uint64 `json:"rx_dropped"`
	RxOverruns uint64 `json:"rx_overruns"`
	RxFrame    uint64 `json:"rx_frame"`
	TxPackets  uint64 `json:"tx_packets"`
	TxBytes    uint64 `json:"tx_bytes"`
	TxErrors   uint64 `json:"tx_errors"`
	TxDropped  uint64 `json:"tx_dropped"`
	TxOverruns uint64 `json:"tx_overruns"`
	TxCarrier  uint64 `json:"tx_carrier"`
	Collisions uint64 `json:"collisions"`
}

// Stats returns the counters of the interface with that index.
func (c *Conn) Stats(index int) (s LinkStats, err error) {
	err = c.do(func(h *netlink.Handle) error {
		link, err := h.LinkByIndex(index)
		if err != nil {
			return linkError(index, err)
		}
		n := link.Attrs().Statistics
		if n == nil {
			return nil // the kernel did not say
		}
		s = LinkStats{
			RxPackets: n.RxPackets, RxBytes: n.RxBytes, RxErrors: n.RxErrors, RxDropped: n.RxDropped,
			RxOverruns: n.RxFifoErrors, RxFrame: n.RxFrameErrors,
			TxPackets: n.TxPackets, TxBytes: n.TxBytes, TxErrors: n.TxErrors, TxDropped: n.TxDropped,
			TxOverruns: n.TxFifoErrors, TxCarrier: n.TxCarrierErrors, Collisions: n.Collisions,
		}
		return nil
	})
	return s, err
}

package counter

// Interface is the kernel's counters of an interface, as ifconfig shows them.
// RX enters the host, TX leaves it.
type Interface struct {
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

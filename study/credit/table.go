package credit

// Part is a component's share of a latency, in nanoseconds.
type Part struct {
	Name string
	Ns   int
}

// Access returns the components of a remote access without transmission (table 8).
func Access() []Part {
	return []Part{
		{"AMD Northbridge", 40}, {"On-chip memory access", 60}, {"Heidelberg HT Cave Device", 45},
		{"HTEA", 48}, {"10 Gbps Ethernet MAC", 500}, {"10 Gbps Ethernet Switch", 200},
	}
}

// The stages of one packet, in nanoseconds (table 9).
const (
	mapping = 192
	encap   = 244
	macOut  = 122
	network = 244
	macIn   = 298
	decap   = 222
	queueIn = 156
)

// Packet returns the stages that one packet passes (table 9).
func Packet() []Part {
	return []Part{
		{"HToE mapping, queuing", mapping}, {"HToE credits, retry, encap", encap}, {"Ethernet MAC (out)", macOut},
		{"Eth switching and link", network}, {"Ethernet MAC (in)", macIn}, {"HToE deencapsulation", decap},
		{"HToE queuing (in)", queueIn},
	}
}

// Sum returns the sum of parts, in nanoseconds.
func Sum(parts []Part) (ns int) {
	for _, p := range parts {
		ns += p.Ns
	}
	return ns
}

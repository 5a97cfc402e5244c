package ofi

import "strings"

// namePrefix is what the name of a link begins with that libfabric carries.
const namePrefix = "ofi:"

// hardware are the providers that are drivers of RDMA hardware (fi_provider(7)): of InfiniBand and
// RoCE, Amazon's EFA, Slingshot, Omni-Path.
var hardware = map[string]bool{"verbs": true, "efa": true, "cxi": true, "opx": true, "psm2": true, "psm3": true}

// Hardware reports whether a link of this name (Engine.Name) is RDMA hardware. Providers may be
// layered, as in verbs;ofi_rxm: the first one is the driver.
func Hardware(name string) bool {
	provider, ok := strings.CutPrefix(name, namePrefix)
	driver, _, _ := strings.Cut(strings.ToLower(provider), ";")
	return ok && hardware[driver]
}

package nic

import (
	"iter"

	"exnet/fabric/atu"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// Stats are the counters of all units of a NIC.
type Stats struct {
	VELO velo.Stats
	RMA  rma.Stats
	ATU  atu.Stats
}

// Stats returns the counters. They are read one by one while the NIC runs, so they
// need not agree exactly.
func (n *NIC) Stats() Stats {
	return Stats{VELO: n.velo.Stats(), RMA: n.rma.Stats(), ATU: n.atu.Stats()}
}

// All yields each counter with its name, such as "velo.sent", in a fixed order.
func (s Stats) All() iter.Seq2[string, uint64] {
	v, r, a := s.VELO, s.RMA, s.ATU
	list := []struct {
		name  string
		value uint64
	}{
		{"velo.sent", v.Sent},
		{"velo.multicasts", v.Multicasts},
		{"velo.multicast_skipped", v.MulticastSkipped},
		{"velo.multicast_absent", v.MulticastAbsent},
		{"velo.received", v.Received},
		{"velo.void", v.Void},
		{"velo.bad_slot", v.BadSlot},
		{"velo.bad_flow", v.BadFlow},
		{"velo.no_credit", v.NoCredit},
		{"velo.mailbox_full", v.MailboxFull},
		{"velo.peer_down", v.PeerDown},
		{"velo.no_route", v.NoRoute},
		{"velo.credit_events", v.CreditEvents},
		{"velo.interrupts", v.Interrupts},
		{"rma.gets", r.Gets},
		{"rma.get_bytes", r.GetBytes},
		{"rma.puts", r.Puts},
		{"rma.put_bytes", r.PutBytes},
		{"rma.failed", r.Failed},
		{"rma.served", r.Served},
		{"rma.local_protection", r.LocalProtection},
		{"rma.queue_full", r.QueueFull},
		{"rma.no_route", r.NoRoute},
		{"rma.remote_protection", r.RemoteProtection},
		{"rma.no_vpid", r.NoVPID},
		{"rma.bad_requests", r.BadRequests},
		{"rma.overruns", r.Overruns},
		{"rma.interrupts", r.Interrupts},
		{"atu.regions", a.Regions},
		{"atu.unmapped", a.Unmapped},
		{"atu.bounds", a.Bounds},
		{"atu.vpid", a.VPID},
		{"atu.access", a.Access},
		{"atu.generation", a.Generation},
		{"atu.node", a.Node},
	}
	return func(yield func(string, uint64) bool) {
		for _, c := range list {
			if !yield(c.name, c.value) {
				return
			}
		}
	}
}

// Package attach is the link of a NIC whose program is no node, but has ports at its node, as C
// programs have by libvelo2 and librma2 (package ports).
//
// # Architecture
//
//	NIC ── OpenVELO, OpenRMA ──▶ port ── open, connect ──▶ the node's port server
//	 │                            │ grants, flows
//	 ├─ Send, Put, Get ─▶ grant ──┼─ writes ─▶ flow, memory of a peer: another program, in Go or C
//	 └◀─ messages, notifications ─┴─ reads ◀─ flows of peers
//
// Each VELO mailbox and each RMA endpoint is a port of its own. What others send arrives in a
// flow for each of them, from which whoever polls moves it to the mailbox or the queue: a
// consumer, or the port's goroutine when its bell rings. Peers write and read lent regions
// themselves, as the port's table says, which follows the ATU.
//
// # Concurrency
//
// Any goroutine may call. Nothing is locked while the NIC's handlers run.
//
// # Limits
//
// Ports of this host. A region can be lent if it is memory of ATU.Alloc, and that is by whole
// pages. Peers of the same user keep to the table of their own accord, as C programs do. A message
// of a mailbox is in the flow of its source until there is a slot, so that a source may have 128
// more on the way than it has credits. What the node says about a group, and of a member that has
// not opened the VPID, is believed for 20 ms. Notification PUTs and locks of C programs are not
// told to a Go program.
package attach

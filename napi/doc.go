// Package napi schedules the polling of a NIC's units, as Linux's NAPI does
// (thesis 5.1.4, figures 5.4 and 5.15).
//
// A unit that has received something raises an interrupt; its handler masks
// further interrupts and puts the unit on a poll list; whoever runs the list
// polls the unit with a budget, and when the unit is empty, unmasks its
// interrupt and looks once more. Under load the interrupts stay masked and
// polling continues round-robin.
//
// # Architecture
//
//	unit's interrupt      Source.Interrupt       Context
//	(VELO, RMA)           ┌──────────────┐  mark ┌───────────────────────────┐
//	 message arrived ────►│ mask, count  │──────►│ state word:               │
//	                      └──────────────┘       │  poll list, owner, modes  │
//	                                             └────────────┬──────────────┘
//	                                          nobody owns it? │ then the caller does
//	          ┌───────────────────────────────────────────────▼─────────────┐
//	          │ run (net_rx_action): take the next source                   │
//	          │   coalescing: leave it be until the timer                   │
//	          │   else Poll(budget)                                         │
//	          │   < budget: EnableInterrupt, recheck   (napi_complete_done) │
//	          │  >= budget: back to the end of the list                     │
//	          │ list empty: give up ownership                               │
//	          │ 300 frames or 2 ms in somebody else's goroutine: hand over  │
//	          └──────────────────────────────┬──────────────────────────────┘
//	                                         ▼
//	                            Context.Run (ksoftirqd): goes on until the list
//	                            is empty, then sleeps
//
// What Linux calls which:
//
//	Context           a CPU's softnet_data: poll list and NET_RX softirq
//	Event             what brings an interrupt to a driver in user space (UIO, VFIO)
//	Source            struct napi_struct
//	Source.Interrupt  the driver's interrupt handler, napi_schedule
//	Source.Schedule   napi_enable and napi_schedule
//	Poller.Poll       the driver's poll method
//	Context.Run       ksoftirqd
//	bit of a Source   NAPI_STATE_SCHED
//	Budget            weight of a napi_struct, 64
//	InlineBudget      net.core.netdev_budget, 300
//	InlineTime        net.core.netdev_budget_usecs, 2000
//	Coalesce          ethtool -C: rx-frames, rx-usecs, adaptive-rx
//
// The whole scheduling state is one atomic word (word.go): which sources are on
// the list, whether it has an owner, and which. Each transition is a pure
// function of that word. A test explores every interleaving of producers,
// runners and mode changes over these functions and shows that no message is
// left behind with its interrupt masked and no one to poll it.
//
// The list is that word's lowest 32 bits, served round-robin by registration
// number instead of in order of arrival: between two polls of one source every
// other source on the list is polled once, as a FIFO also guarantees.
//
// # Concurrency
//
// Interrupt, Schedule, SetMode, Stats and Close may be called from any
// goroutine, Interrupt also from within a Poll of the same Context: it then
// only marks. One goroutine at a time owns the list, so Poll and
// EnableInterrupt of all sources of a Context are never called concurrently.
// DisableInterrupt may be called at any time.
//
// In ModeInterrupt nothing is polled in the goroutine that raised the interrupt.
// The handler signals Config.Event; Run's goroutine waits for it, handles one frame,
// unmasks the interrupt, and waits for the next event, even if that has already
// come.
//
// The package starts no goroutine. Without Run, the goroutine that raised the
// interrupt, or the Clock's timer, always runs the poll list to its end; with
// Run, such a run is bounded and Run takes the rest.
//
// Nothing locks on the data path; the one mutex is Register's.
//
// # Limits
//
// A Context has at most MaxSources sources; they are never removed one by one;
// Close ends them all. ModeBusyPoll needs Run and a core.
package napi

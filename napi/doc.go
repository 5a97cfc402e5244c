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
//	          │   coalescing: leave it until the timer fires                │
//	          │   else Poll(budget)                                         │
//	          │   < budget: EnableInterrupt, recheck   (napi_complete_done) │
//	          │  >= budget: back to the end of the list                     │
//	          │ list empty: give up ownership                               │
//	          │ 300 frames or 2 ms in a goroutine other than Run: hand over │
//	          └──────────────────────────────┬──────────────────────────────┘
//	                                         ▼
//	                            Context.Run (ksoftirqd): continues until the list
//	                            is empty, then sleeps
//
// The names in Linux:
//
//	Context           a CPU's softnet_data: poll list and NET_RX softirq
//	Event             eventfd of an interrupt for a driver in user space (UIO, VFIO)
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
// The whole scheduling state is one atomic word (word.go): which sources are on the
// list, who owns it, and the mode. Each transition is a pure function of that word. A
// test explores every interleaving of producers, runners and mode changes over these
// functions, and shows that no message is ever left with its interrupt masked and
// nobody to poll it.
//
// The list is that word's lowest 32 bits, served round-robin by registration
// number instead of in order of arrival: between two polls of one source every
// other source on the list is polled once, as a FIFO also guarantees.
//
// # Concurrency
//
// Interrupt, Schedule, SetMode, Stats and Close may be called from any
// goroutine. Within a Poll of the same Context, Interrupt only marks the source.
// One goroutine at a time owns the list, so Poll and
// EnableInterrupt of all sources of a Context are never called concurrently.
// DisableInterrupt may be called at any time.
//
// In ModeInterrupt the goroutine that raised the interrupt polls nothing. It signals
// Config.Event; Run's goroutine waits for that, handles one frame, unmasks the
// interrupt, and waits for the next event, even if it is already there.
//
// The package starts no goroutine. Without Run, the goroutine that raised the
// interrupt, or the Clock's timer, always runs the poll list to its end; with
// Run, such a run is bounded and Run takes the rest.
//
// The data path takes no lock; the only mutex is for Register.
//
// # Limits
//
// A Context has at most MaxSources sources. They cannot be removed one by one; Close
// ends them all. ModeBusyPoll needs Run and a core.
package napi

// Package coredist measures how far two CPUs are from each other: the time that
// a cache line and 64 KB of data take from one to the other.
//
// # Architecture
//
//	thread on CPU a                       thread on CPU b
//	  word = n   ───── cache line ─────▶   sees n
//	  sees n     ◀──── cache line ──────   word = n      Line: half of this
//
//	  writes 64 KB, then the word ─────▶   copies 64 KB  HandOver: this copy
//
// On a virtual machine the distance changes as the host moves virtual CPUs. Paths
// through shared memory then differ by a factor of three to five, and TCP hardly.
// So a figure without the distance says little.
//
// The result also has the speed of copying, in the cache (64 KB) and beyond (64 MB):
// on a host shared with others it has dropped to a third of its quiet value, which
// costs most where most is copied.
//
// # Concurrency
//
// Measure runs two threads of its own, which it binds and then ends.
//
// # Limits
//
// Other work on the two CPUs disturbs it, so it takes the minimum of many
// rounds for the cache line, and the lower quartile for the hand-over. It gives
// up after Limit.
package coredist

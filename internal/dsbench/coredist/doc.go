// Package coredist measures how far two CPUs are from each other: what a cache
// line and 64 KB of data cost on their way from one to the other.
//
// # Architecture
//
//	thread on CPU a                       thread on CPU b
//	  word = n   ───── cache line ─────▶   sees n
//	  sees n     ◀──── cache line ──────   word = n      Line: half of this
//
//	  writes 64 KB, then the word ─────▶   copies 64 KB  HandOver: this copy
//
// On a virtual machine the distance changes while it runs: the host moves virtual
// CPUs about. Paths through shared memory then differ by a factor of three to
// five, and TCP hardly. So a figure without the distance says little.
//
// Beside it stands how fast memory is copied, in the cache (64 KB) and beyond (64 MB):
// a host whose memory and caches others use has been seen at a third of what it does
// when it is quiet, and what copies more then loses more.
//
// # Concurrency
//
// Measure runs two threads of its own, which it binds and then ends.
//
// # Limits
//
// Other work on the two CPUs disturbs it: the least of many rounds is taken for
// the cache line, and the lower quartile for the hand-over. It gives up after
// Limit.
package coredist

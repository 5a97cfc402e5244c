// Package atu is the NIC's address translation unit: it registers memory, hands
// out network logical addresses (NLAs) for it, and checks every access that the
// RMA unit makes on behalf of this node or a peer (thesis 3.2.5). In libfabric's
// words a Region is a memory region (MR) and its NLA is address and key in one.
//
// # Architecture
//
// A translation walks two levels of tables, as on the chip, and ends at the
// region, which has one 64-bit atomic state word:
//
//	NLA ──GAT index──▶ GAT ──page──▶ Region ──▶ state {generation, mode, node, busy}
//	                                             │ equal generation, node admitted:
//	                                             ▼ busy+1
//	                                           Window ── Release: busy-1
//
// A newly registered region is closed to other nodes. Lend opens it for one node
// under a new generation, which is part of the NLA: from then on an NLA of an
// earlier generation is refused. Because generation, admitted node and the
// number of running transfers share one word, a late GET on a revoked buffer is
// refused, and a buffer cannot be revoked while a transfer runs on it. The
// region's own node may always use the current NLA.
//
// A page list is a region, too. Its pages may be anywhere in the memory of Alloc; they are
// mapped once more in a row, so a transfer sees one range of bytes.
//
// # Concurrency
//
// Everything may be called from many goroutines. Translate, Release, Lend and
// Revoke are lock-free and do not allocate. Register and Close take the ATU's
// lock. Close waits for running transfers: it must not be called from a
// Device's WriteAt on the same region.
//
// # Limits
//
// 1024 GATs of 2^18 pages of 4 KB: 1 TB of addresses per NIC. A region lies in one
// GAT, so it has at most 1 GB. Page tables exist only for registered memory: a
// table entry covers 4 KB, or 2 MB inside a large region. Generations have 24 bits: an
// NLA becomes valid again after 2^24 further Lends of the same region.
package atu

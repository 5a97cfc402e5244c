package address

import (
	"fmt"

	"exnet/fabric"
)

// Sizes of global addresses: 2^24 partitions of 2^40 bytes.
const (
	PartitionBits = 24
	OffsetBits    = 40
	Partitions    = 1 << PartitionBits
	PartitionSize = 1 << OffsetBits
)

// Global is a global address:
//
//	 63               40 39                                     0
//	┌───────────────────┬────────────────────────────────────────┐
//	│ partition      24 │ offset                              40 │
//	└───────────────────┴────────────────────────────────────────┘
type Global uint64

// MakeGlobal returns the address of an offset in a partition. The error wraps fabric.ErrInvalid if
// one of them is too large.
func MakeGlobal(partition uint32, offset uint64) (Global, error) {
	if partition >= Partitions || offset >= PartitionSize {
		return 0, fmt.Errorf("address: partition %d, offset %#x: use up to %d and %#x: %w", partition, offset, Partitions-1, uint64(PartitionSize-1), fabric.ErrInvalid)
	}
	return Global(partition)<<OffsetBits | Global(offset), nil
}

// Partition is the partition of the address.
func (g Global) Partition() uint32 { return uint32(g >> OffsetBits) }

// Offset is the address in its partition.
func (g Global) Offset() uint64 { return uint64(g) & (PartitionSize - 1) }

// String returns partition:offset in hexadecimal.
func (g Global) String() string { return fmt.Sprintf("%06x:%010x", g.Partition(), g.Offset()) }

// Each of the registers is for a quarter of a node's addresses.
const (
	registers  = 4
	quarter    = OffsetBits - 2
	localLimit = 1 << OffsetBits
)

// Registers are the partition registers of a node: the two upper bits of an address of 40 bits
// choose one, which has the partition, and are cleared (thesis 004, 4.5).
type Registers struct {
	partition [registers]uint32
	set       [registers]bool
}

// Set says which partition addresses with the upper bits i are in. The error wraps
// fabric.ErrInvalid.
func (r *Registers) Set(i int, partition uint32) error {
	if i < 0 || i >= registers || partition >= Partitions {
		return fmt.Errorf("address: register %d, partition %d: use up to %d and %d: %w", i, partition, registers-1, Partitions-1, fabric.ErrInvalid)
	}
	r.partition[i], r.set[i] = partition, true
	return nil
}

// Clear has addresses with the upper bits i be nowhere.
func (r *Registers) Clear(i int) {
	if i >= 0 && i < registers {
		r.set[i] = false
	}
}

// Global returns the global address of an address of the node. The error wraps fabric.ErrInvalid if
// it has more than 40 bits, and fabric.ErrProtection if its register is not set.
func (r *Registers) Global(local uint64) (Global, error) {
	if local >= localLimit {
		return 0, fmt.Errorf("address: %#x has more than %d bits: %w", local, OffsetBits, fabric.ErrInvalid)
	}
	i := local >> quarter
	if !r.set[i] {
		return 0, fmt.Errorf("address: %#x: register %d is not set: %w", local, i, fabric.ErrProtection)
	}
	return MakeGlobal(r.partition[i], local&(1<<quarter-1))
}

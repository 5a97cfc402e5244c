package pool

import (
	"testing"

	"exnet/memory/wire"
)

// An operation has its slots alone: one that shares a slot with it is refused, and those beside
// it are not.
func TestSlots(t *testing.T) {
	get := func(slot uint32, bytes uint64) uint64 {
		return slotsOf(wire.Message{Op: wire.OpGet, Number: slot, B: bytes})
	}
	var w window
	if !w.takeSlots(get(4, 3*wire.SlotSize)) {
		t.Fatal("slots 4 to 6")
	}
	if w.takeSlots(get(6, 3*wire.SlotSize)) {
		t.Error("slots 6 to 8, of which one is in use")
	}
	if w.takeSlots(get(2, 3*wire.SlotSize)) {
		t.Error("slots 2 to 4, of which one is in use")
	}
	for slot, ok := range map[uint32]bool{0: true, 3: true, 4: false, 5: false, 6: false, 7: true} {
		if w.takeSlots(get(slot, 1)) != ok {
			t.Errorf("slot %d beside 4 to 6: want %v", slot, ok)
		}
	}
	w.freeSlots(get(4, 3*wire.SlotSize))
	if !w.takeSlots(get(4, 2*wire.SlotSize+1)) {
		t.Error("slots 4 to 6 once more")
	}
	for _, m := range []wire.Message{
		{Op: wire.OpGet, Number: wire.Slots, B: 1},
		{Op: wire.OpPut, Number: wire.Slots - 1, B: wire.SlotSize + 1},
		{Op: wire.OpZero, Number: 1<<32 - 1, B: 4096},
	} {
		if slots := slotsOf(m); slots != 0 || w.takeSlots(slots) {
			t.Errorf("%+v has slots %b", m, slots)
		}
	}
}

package uffd

// Event says what a message is about.
type Event uint8

// Events, as linux/userfaultfd.h numbers them.
const (
	Fault  Event = 0x12
	Fork   Event = 0x13
	Remap  Event = 0x14
	Remove Event = 0x15
	Unmap  Event = 0x16
)

// Message is what a userfaultfd reports. The thread that causes it waits until it is read, and in a
// Fault until the page is there.
type Message struct {
	Event Event
	// Start is the address of a Fault, where the range of a Remap, Remove or Unmap begins; End is
	// where that ends, and To where a Remap has moved it.
	Start, End, To uint64
	// Write says that the Fault is a write, Protected that the page is there and protected.
	Write, Protected bool
	// Thread is the ID of the thread that waits in a Fault, as its PID namespace has it.
	Thread int
	// Child is the userfaultfd of the process that a Fork has made.
	Child FD
}

package napi_test

import (
	"fmt"
	"log"

	"exnet/napi"
)

// queue is a unit with messages, and an interrupt line that can be masked.
type queue struct {
	messages int
	unmasked bool
}

// Poll implements napi.Poller.
func (q *queue) Poll(budget int) napi.Work {
	n := min(budget, q.messages)
	q.messages -= n
	fmt.Println("poll:", n)
	return napi.Work{Frames: n}
}

// EnableInterrupt implements napi.Poller.
func (q *queue) EnableInterrupt() (pending bool) {
	q.unmasked = true
	return q.messages > 0
}

// DisableInterrupt implements napi.Poller.
func (q *queue) DisableInterrupt() { q.unmasked = false }

// PollFrame implements napi.Poller. A message is a frame here.
func (q *queue) PollFrame() napi.Work { return q.Poll(1) }

// RaiseInterrupt implements napi.Poller. Nothing in this example uses ModeInterrupt.
func (q *queue) RaiseInterrupt() {}

// An interrupt puts the unit on the poll list, which is polled with a budget until the
// unit is empty; then its interrupt is unmasked.
func Example() {
	c, err := napi.New(napi.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	q := &queue{messages: 100}
	source, err := c.Register(napi.SourceConfig{Name: "velo", Poller: q, Budget: 64})
	if err != nil {
		log.Fatal(err)
	}
	source.Interrupt()
	fmt.Println("interrupt unmasked:", q.unmasked)
	// Output:
	// poll: 64
	// poll: 36
	// interrupt unmasked: true
}

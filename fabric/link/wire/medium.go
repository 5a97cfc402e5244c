package wire

import (
	"io"
	"sync"
)

// Medium carries packets to the peer, or loses them.
//
// Concurrency: Send and Close may be called from many goroutines, Receive from one.
type Medium interface {
	// Send sends a packet of at most MaxPacket bytes, which it borrows until it
	// returns. It does not wait: a medium that is busy loses the packet. An error
	// says that the medium is of no use any more.
	Send(p []byte) error
	// Receive waits for a packet and copies it to p. io.EOF: nothing will come.
	Receive(p []byte) (int, error)
	// Close ends Receive on both sides.
	Close() error
}

// pipeQueue is how many packets a Pipe holds in a direction.
const pipeQueue = 4 * Window

// Pipe returns the two ends of a medium in this process. Packets from a to b meet
// the faults ab, those from b to a the faults ba. ErrFaults: they cannot be.
func Pipe(ab, ba Faults) (a, b *PipeEnd, err error) {
	there, back := make(chan []byte, pipeQueue), make(chan []byte, pipeQueue)
	thereWay, err := newWay(ab, packetQueue(there), false)
	if err != nil {
		return nil, nil, err
	}
	backWay, err := newWay(ba, packetQueue(back), false)
	if err != nil {
		return nil, nil, err
	}
	done, once := make(chan struct{}), new(sync.Once)
	return &PipeEnd{thereWay, backWay, back, done, once}, &PipeEnd{backWay, thereWay, there, done, once}, nil
}

// packetQueue returns what puts packets into a queue, and loses those that it has no room
// for.
func packetQueue(queue chan<- []byte) func(p []byte) error {
	return func(p []byte) error {
		select {
		case queue <- p:
		default:
		}
		return nil
	}
}

// PipeEnd is one end of a Pipe.
//
// Concurrency: all methods may be called from many goroutines.
type PipeEnd struct {
	out, in *way
	queue   <-chan []byte // behind in
	done    chan struct{}
	once    *sync.Once
}

// Send implements Medium.
func (e *PipeEnd) Send(p []byte) error {
	select {
	case <-e.done:
		return io.ErrClosedPipe
	default:
	}
	return e.out.send(p)
}

// Receive implements Medium.
func (e *PipeEnd) Receive(p []byte) (int, error) {
	select {
	case b := <-e.queue:
		return copy(p, b), nil
	case <-e.done:
		return 0, io.EOF
	}
}

// SetFaults changes what happens to the packets that this end sends. ErrFaults: it
// cannot be.
func (e *PipeEnd) SetFaults(f Faults) error { return e.out.setFaults(f) }

// Close implements Medium.
func (e *PipeEnd) Close() error {
	e.once.Do(func() {
		close(e.done)
		e.out.stop()
		e.in.stop()
	})
	return nil
}

var _ Medium = (*PipeEnd)(nil)

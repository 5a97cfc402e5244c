package link

import "time"

// Driver is a thread that serves active links beside other work. It handles what
// arrives in the thread that waits for it, so a link needs no goroutine.
type Driver interface {
	// Take has the driver serve s until either of them ends. It returns false if the
	// driver has ended, and s is not taken.
	Take(s Served) bool

	// Wake makes the driver call Serve of all its links soon. It may be called from
	// any goroutine.
	Wake()
}

// Forever, returned by Served.Arm, says that only the descriptor ends the wait.
const Forever = time.Duration(-1)

// Served is a link as its Driver sees it.
//
// Concurrency: all methods are called by the driver's thread, one at a time.
type Served interface {
	// Fd returns the descriptor that the driver waits for to become readable. It is
	// valid until Leave.
	Fd() int

	// Serve moves what has arrived to its place, as far as it goes for a bounded
	// time, and may run handlers. It returns how many bytes that was, and 0 only if
	// there was nothing to do. rung says that Fd was readable. With ok false the
	// link is down, and Leave follows.
	Serve(rung bool) (moved int, ok bool)

	// Arm comes before a wait, and says how long that may be: 0 if there is
	// something to do, which Serve does, or Forever. What comes from now on makes
	// Fd readable.
	Arm() time.Duration

	// Doze says that the driver sleeps for a moment without waiting for Fd. Serve
	// follows. Consumers that look for themselves may do so meanwhile.
	Doze()

	// Bind tells the peer's driver which CPU the thread is bound to; -1 for none.
	Bind(cpu int)

	// PeerCPU returns the CPU that the peer's driver is bound to, or -1 if unknown.
	PeerCPU() int

	// Leave says that the driver no longer serves the link.
	Leave()
}

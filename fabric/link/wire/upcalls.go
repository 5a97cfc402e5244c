package wire

import "sync"

// upcalls are the calls of a NIC that may run handlers, which may send over the
// same link and wait for what the reader brings: so they are not the reader's.
type upcalls struct {
	mu    sync.Mutex
	more  sync.Cond
	calls []func() // guarded by mu
	last  bool     // guarded by mu: no more come
	ended chan struct{}
}

func (u *upcalls) init() {
	u.more.L = &u.mu
	u.ended = make(chan struct{})
}

// queueCall queues a call. There are as many as there are credits and operations, at
// most.
func (u *upcalls) queueCall(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = append(u.calls, f)
	u.more.Signal()
}

// finishCalls returns when all calls have been made; later ones are not.
func (u *upcalls) finishCalls() {
	u.mu.Lock()
	u.last = true
	u.more.Signal()
	u.mu.Unlock()
	<-u.ended
}

func (u *upcalls) makeCalls() {
	defer close(u.ended)
	u.mu.Lock()
	defer u.mu.Unlock()
	for {
		for len(u.calls) == 0 {
			if u.last {
				return
			}
			u.more.Wait()
		}
		calls := u.calls
		u.calls = nil
		u.mu.Unlock()
		for _, f := range calls {
			f()
		}
		u.mu.Lock()
	}
}

package rma

import (
	"fmt"
	"sync"

	"exnet/fabric"
	"exnet/fabric/atu"
)

// Initiator keeps many operations of an Endpoint under way at once, and tells each one's end, in
// whatever order they end.
//
// Concurrency: all methods may be called from many goroutines. Ends are told one after the other,
// by a goroutine of the Initiator or by Close: what is told must not wait, and must not call Close.
type Initiator struct {
	port *Endpoint
	wake chan struct{}
	end  chan struct{}
	all  sync.WaitGroup

	mu sync.Mutex
	// under: who is told the end of the operations under way, by the address in the notification.
	under  map[atu.NLA]func(fabric.Status) // +checklocks:mu
	closed bool                            // +checklocks:mu
}

// NewInitiator takes e, whose notifications are the Initiator's from now on.
func NewInitiator(e *Endpoint) *Initiator {
	i := &Initiator{port: e, wake: make(chan struct{}, 1), end: make(chan struct{})}
	i.mu.Lock()
	i.under = make(map[atu.NLA]func(fabric.Status))
	i.mu.Unlock()
	e.OnInterrupt(func() {
		select {
		case i.wake <- struct{}{}:
		default:
		}
	})
	i.all.Go(i.tellEnds)
	return i
}

// VPID returns that of the Endpoint.
func (i *Initiator) VPID() fabric.VPID { return i.port.vpid }

// Get starts a GET, with a completer notification in any case. If it returns nil, done is called
// once: with the status of the operation, or with StatusPeerDown if the Initiator is closed before.
// If it returns an error, nothing was started; the errors are those of Endpoint.Get, and one that
// wraps fabric.ErrInUse while another operation under way ends at the same local packet.
func (i *Initiator) Get(r GetReq, done func(fabric.Status)) error {
	r.Notify |= NotifyCompleter
	return i.startOp(LastFragment(r.Local, r.Len), done, func() error { return i.port.Get(r) })
}

// Put is Get for a PUT, with a requester notification.
func (i *Initiator) Put(r PutReq, done func(fabric.Status)) error {
	r.Notify |= NotifyRequester
	return i.startOp(LastFragment(r.Local, r.Len), done, func() error { return i.port.Put(r) })
}

func (i *Initiator) startOp(key atu.NLA, done func(fabric.Status), post func() error) error {
	if err := i.addPending(key, done); err != nil {
		return err
	}
	err := post()
	if err == nil {
		return nil
	}
	if _, mine := i.takePending(key); !mine { // Close has told the end
		return nil
	}
	return err
}

func (i *Initiator) addPending(key atu.NLA, done func(fabric.Status)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return errClosed
	}
	if _, taken := i.under[key]; taken {
		return fmt.Errorf("rma: an operation on %v is under way: %w", key, fabric.ErrInUse)
	}
	i.under[key] = done
	return nil
}

// takePending returns who is to be told that an operation has ended; false: nobody.
func (i *Initiator) takePending(key atu.NLA) (done func(fabric.Status), ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	done, ok = i.under[key]
	delete(i.under, key)
	return done, ok
}

// tellEnds tells ends as the notifications come.
func (i *Initiator) tellEnds() {
	for {
		for n, ok := i.port.Next(); ok; n, ok = i.port.Next() {
			if isForeign(&n) {
				continue
			}
			if done, ok := i.takePending(n.Local); ok {
				done(n.Status)
			}
		}
		if i.port.EnableInterrupt() {
			continue
		}
		select {
		case <-i.wake:
		case <-i.end:
			return
		}
	}
}

// Close closes the Endpoint, and ends what is under way with StatusPeerDown. A transfer may still
// run on its memory: close the Region before the memory is used again.
func (i *Initiator) Close() error {
	i.mu.Lock()
	was, left := i.closed, i.under
	i.closed, i.under = true, nil
	i.mu.Unlock()
	if was {
		return errClosed
	}
	close(i.end)
	i.all.Wait()
	err := i.port.Close()
	for _, done := range left {
		done(fabric.StatusPeerDown)
	}
	return err
}

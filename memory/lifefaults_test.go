package memory_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/memory"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// leaseFaultKind is what happens when a node is about to send or to hear a message about leases.
type leaseFaultKind uint8

const (
	leaseCut      leaseFaultKind = iota // the link is away for a moment
	leaseGiven                          // the lender gives the borrower's node up
	leaseGivenUp                        // the borrower's node gives the lender up
	leaseRestarts                       // the lender is killed, and begins anew
	leaseFaultKinds
)

func (k leaseFaultKind) String() string {
	return [...]string{"the link is cut", "the lender gives up", "the borrower's node gives up", "the lender is killed"}[k]
}

// leaseAt is a fault before a message, as both nodes together count theirs.
type leaseAt struct {
	message int
	kind    leaseFaultKind
}

// leaseRun is two leases between two hosts, with faults.
type leaseRun struct {
	hosts *pooltest.Hosts
	all   sync.WaitGroup // faults under way

	mu       sync.Mutex
	messages int
	faults   []leaseAt
	busy     bool

	nodes sync.Mutex // guards hosts' fields
}

// step is called before each message.
func (r *leaseRun) step() {
	r.mu.Lock()
	at := r.messages
	r.messages++
	if r.busy || len(r.faults) == 0 || at < r.faults[0].message {
		r.mu.Unlock()
		return
	}
	kind := r.faults[0].kind
	r.faults, r.busy = r.faults[1:], true
	r.mu.Unlock()
	done := make(chan struct{})
	r.all.Go(func() {
		defer close(done)
		r.happen(kind)
	})
	select {
	case <-done:
	case <-time.After(20 * time.Millisecond): // the fault may wait for this goroutine
	}
}

func (r *leaseRun) happen(kind leaseFaultKind) {
	r.nodes.Lock()
	defer r.nodes.Unlock()
	r.hosts.Cut()
	switch kind {
	case leaseGiven:
		r.hosts.GiveUp(1)
	case leaseGivenUp:
		r.hosts.GiveUp(0)
	case leaseRestarts:
		r.hosts.Restart(1)
	}
	r.hosts.Join()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
}

// lender is the node that lends, at present.
func (r *leaseRun) lender() *pool.Server {
	r.nodes.Lock()
	defer r.nodes.Unlock()
	return r.hosts.Nodes[1]
}

// hold borrows, fills, reads, is asked to give back, reads again and gives back. mark is what its
// bytes are. It returns what fails once there is a lease.
func (r *leaseRun) hold(t *testing.T, mark byte) error {
	const size = 256 << 10
	node, wanted := fabric.NodeID(1), make(chan struct{}, 1)
	var s *memory.Segment
	waitUntil(t, "a lease", func() (ok bool) {
		got, err := memory.Borrow(t.Context(), memory.Config{
			Socket: r.hosts.Socket(0), Node: &node, Size: size, OnRevoke: func(time.Time) { wanted <- struct{}{} },
		})
		s = got
		return err == nil
	})
	defer s.Close()
	got, want := make([]byte, size), make([]byte, size)
	read := func() error {
		if _, err := s.ReadAt(got, 0); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			t.Errorf("lease %d: other bytes are read than were written", mark)
		}
		return nil
	}
	if err := read(); err != nil { // zeros
		return err
	}
	for i := range want {
		want[i] = mark ^ byte(i)
	}
	if _, err := s.WriteAt(want, 0); err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	time.Sleep(5 * time.Millisecond) // it is renewed
	r.lender().Revoke(func(pool.Lease) bool { return true }, time.Minute)
	select {
	case <-wanted:
	case <-s.Done():
	}
	if err := read(); err != nil {
		return err
	}
	return s.Close()
}

// live has two leases with faults. It returns how many messages the nodes have sent and heard.
func (r *leaseRun) live(t *testing.T) int {
	lend := pool.Config{Limits: pool.Limits{Lend: 512 << 10}, TTL: time.Minute}
	r.hosts = pooltest.NewSteppingHosts(t, r.step, pool.Config{Renew: 2 * time.Millisecond}, lend)
	ends := false
	for _, f := range r.faults {
		ends = ends || f.kind != leaseCut
	}
	r.nodes.Lock()
	r.hosts.Join()
	r.nodes.Unlock()
	for round := range byte(2) {
		var both sync.WaitGroup
		for i := range byte(2) {
			both.Go(func() {
				err := r.hold(t, 1+2*round+i)
				if err != nil && (!ends || !errors.Is(err, memory.ErrLost)) {
					t.Errorf("lease %d: %v", 1+2*round+i, err)
				}
			})
		}
		both.Wait()
	}
	waitUntil(t, "both nodes have forgotten the leases", func() bool {
		r.nodes.Lock()
		defer r.nodes.Unlock()
		return len(r.hosts.Nodes[1].Status().Lent) == 0 && len(r.hosts.Nodes[0].Status().Borrowed) == 0
	})
	r.all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = nil
	return r.messages
}

// Whatever happens to the link or to the lender before whichever message about two leases, what is
// read is what was written, a cut alone fails nothing, and neither node keeps anything.
func TestLeaseLifeFaults(t *testing.T) {
	runs := 0
	live := func(faults ...leaseAt) (messages int) {
		runs++
		t.Run(fmt.Sprint(faults), func(t *testing.T) { messages = (&leaseRun{faults: faults}).live(t) })
		return messages
	}
	stride := 3
	if testing.Short() {
		stride = 10
	}
	messages := live()
	for at := 0; at < messages; at += stride {
		for k := range leaseFaultKinds {
			live(leaseAt{at, k})
			live(leaseAt{at, k}, leaseAt{at + 1 + runs%7, leaseFaultKind(runs) % leaseFaultKinds})
		}
	}
	t.Logf("%d runs, %d messages without a fault", runs, messages)
}

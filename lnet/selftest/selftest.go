// Package selftest measures LNET as Lustre's lnet_selftest does (thesis section
// 6.7): RPCs between two nodes, ping, brw read and brw write.
//
// # Architecture
//
//	client                               server
//	Put request ───────────────────────► request portal
//	bulk portal ◄──── Put bulk (read) or Get bulk (write)
//	reply portal ◄─── Put reply
//
// Both ends check the data: each 8 bytes have the RPC's number and their place.
//
// # Concurrency
//
// Run starts a goroutine for each thread, and one that polls each interface; they
// have ended when it returns.
//
// # Limits
//
// Both nodes are in this process, on the mem link.
package selftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/lnet"
)

// Test is what is measured.
type Test string

// The tests of lnet_selftest.
const (
	Ping  Test = "ping"
	Read  Test = "brw read"
	Write Test = "brw write"
)

// MaxThreads is the most RPCs that are under way at a time.
const MaxThreads = 64

const (
	portalRequest, portalBulk, portalReply = 1, 2, 3
	messageLen                             = 64 // of requests and replies
	server                                 = fabric.NodeID(1)
)

// Spec says what to measure.
type Spec struct {
	Test      Test
	Size      int // bytes of bulk data, 8 to lnet.MaxPayload; not for Ping
	Threads   int // 1 to MaxThreads
	Immediate int // lnet.Config.Immediate
	Duration  time.Duration
}

// Result is what was measured.
type Result struct {
	RPCs    uint64
	Seconds float64
}

// PerSecond returns the rate of RPCs.
func (r Result) PerSecond() float64 { return float64(r.RPCs) / r.Seconds }

// ErrData says that other bytes have arrived than were sent.
var ErrData = errors.New("selftest: the data is not what was sent")

// Run measures once. Any failed RPC ends it with an error.
func Run(ctx context.Context, s Spec) (r Result, err error) {
	if s.Threads < 1 || s.Threads > MaxThreads || s.Test != Ping && (s.Size < 8 || s.Size > lnet.MaxPayload) {
		return r, fmt.Errorf("selftest: %d threads, %d bytes: %w", s.Threads, s.Size, fabric.ErrInvalid)
	}
	f := mem.NewFabric()
	var nis [2]*lnet.NI
	polling, stop := context.WithCancel(context.Background())
	var polls sync.WaitGroup
	for i := range nis {
		n, err := nic.New(nic.Config{Node: fabric.NodeID(i)})
		if err == nil {
			defer n.Close()
			err = f.Attach(n)
		}
		if err == nil {
			nis[i], err = lnet.Open(n, lnet.Config{Immediate: s.Immediate, PeerCredits: lnet.DefaultPeerCredits})
		}
		if err != nil {
			stop()
			polls.Wait()
			return r, err
		}
		defer nis[i].Close()
		polls.Go(func() { nis[i].Run(polling) })
	}
	defer polls.Wait()
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for i := range s.Threads {
		if err := serve(nis[1], s, uint64(i), fail); err != nil {
			return r, err
		}
	}
	var rpcs atomic.Uint64
	var threads sync.WaitGroup
	begin := time.Now()
	for i := range s.Threads {
		threads.Go(func() {
			if err := client(ctx, nis[0], s, uint64(i), begin, &rpcs); err != nil {
				fail(err)
			}
		})
	}
	threads.Wait()
	return Result{rpcs.Load(), time.Since(begin).Seconds()}, context.Cause(ctx)
}

// client does RPCs, one after the other.
func client(ctx context.Context, ni *lnet.NI, s Spec, thread uint64, begin time.Time, rpcs *atomic.Uint64) error {
	replies := make(chan lnet.Event, 1)
	request, reply, bulk := make([]byte, messageLen), make([]byte, messageLen), make([]byte, s.Size)
	failed := func(e lnet.Event) {
		if e.Err != nil {
			select {
			case replies <- e:
			default:
			}
		}
	}
	me, err := attach(ni, portalReply, thread, lnet.MemoryDescriptor{Buffer: reply, Threshold: lnet.Unlimited, Options: lnet.OpPut | lnet.ManageRemote,
		Handler: func(e lnet.Event) {
			if e.Type == lnet.EventPut {
				replies <- e
			}
		}})
	if err != nil {
		return err
	}
	defer me.Unlink()
	if s.Test != Ping {
		me, err := attach(ni, portalBulk, thread, lnet.MemoryDescriptor{Buffer: bulk, Threshold: lnet.Unlimited,
			Options: lnet.OpPut | lnet.OpGet | lnet.ManageRemote, Handler: failed})
		if err != nil {
			return err
		}
		defer me.Unlink()
	}
	md, err := ni.Bind(lnet.MemoryDescriptor{Buffer: request, Threshold: lnet.Unlimited, Handler: failed})
	if err != nil {
		return err
	}
	for number := thread << 32; time.Since(begin) < s.Duration && ctx.Err() == nil; number++ {
		binary.LittleEndian.PutUint64(request, number)
		if s.Test == Write {
			fill(bulk, number)
		}
		if err := ni.Put(md, lnet.PutRequest{Target: server, Portal: portalRequest, MatchBits: thread}); err != nil {
			return err
		}
		select {
		case e := <-replies:
			if e.Err != nil {
				return e.Err
			}
		case <-ctx.Done():
			return nil
		}
		if binary.LittleEndian.Uint64(reply) != number || s.Test == Read && !right(bulk, number) {
			return ErrData
		}
		rpcs.Add(1)
	}
	return nil
}

// serve answers the RPCs of a thread.
func serve(ni *lnet.NI, s Spec, thread uint64, fail func(error)) error {
	request, reply, bulk := make([]byte, messageLen), make([]byte, messageLen), make([]byte, s.Size)
	var replies, data *lnet.MD
	bind := func(to **lnet.MD, b []byte, handler func(lnet.Event)) error {
		md, err := ni.Bind(lnet.MemoryDescriptor{Buffer: b, Threshold: lnet.Unlimited, Handler: func(e lnet.Event) {
			if e.Err != nil {
				fail(e.Err)
				return
			}
			handler(e)
		}})
		*to = md
		return err
	}
	answer := func() {
		if err := ni.Put(replies, lnet.PutRequest{Portal: portalReply, MatchBits: thread}); err != nil {
			fail(err)
		}
	}
	number := func() uint64 { return binary.LittleEndian.Uint64(reply) }
	err := errors.Join(
		bind(&replies, reply, func(lnet.Event) {}),
		bind(&data, bulk, func(e lnet.Event) {
			if e.Type == lnet.EventReply && !right(bulk, number()) {
				fail(ErrData)
			}
			if e.Type == lnet.EventReply || s.Test == Read && e.Type == lnet.EventAck {
				answer()
			}
		}))
	if err != nil {
		return err
	}
	_, err = attach(ni, portalRequest, thread, lnet.MemoryDescriptor{Buffer: request, Threshold: lnet.Unlimited,
		Options: lnet.OpPut | lnet.ManageRemote, Handler: func(e lnet.Event) {
			if e.Type != lnet.EventPut || e.Err != nil {
				return
			}
			copy(reply, request)
			var err error
			switch s.Test {
			case Ping:
				answer()
			case Read:
				fill(bulk, number())
				err = ni.Put(data, lnet.PutRequest{Portal: portalBulk, MatchBits: thread, Ack: true})
			case Write:
				err = ni.Get(data, lnet.GetRequest{Portal: portalBulk, MatchBits: thread})
			}
			if err != nil {
				fail(err)
			}
		}})
	return err
}

func attach(ni *lnet.NI, portal int, bits uint64, d lnet.MemoryDescriptor) (*lnet.MatchEntry, error) {
	me, err := ni.NewMatchEntry(portal, lnet.Match{Any: true, Bits: bits})
	if err == nil {
		_, err = me.Attach(d)
	}
	return me, err
}

// fill writes the data of an RPC: its number and the place, every 8 bytes.
func fill(b []byte, number uint64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], number^uint64(i)<<40)
	}
}

func right(b []byte, number uint64) bool {
	for i := 0; i+8 <= len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != number^uint64(i)<<40 {
			return false
		}
	}
	return true
}

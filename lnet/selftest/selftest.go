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
// Both ends check the data: the first and last 8 bytes of each page, or all 8 bytes, have the RPC's
// number and their place.
//
// # Concurrency
//
// Run starts a goroutine that polls each interface; they have ended when it returns.
// A thread is, as in lnet_selftest, an RPC at a time.
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
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
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
	client, server                         = fabric.NodeID(0), fabric.NodeID(1)
)

// Spec says what to measure.
type Spec struct {
	Test      Test
	Size      int  // bytes of bulk data, 8 to lnet.MaxPayload; not for Ping
	Threads   int  // 1 to MaxThreads
	Immediate int  // lnet.Config.Immediate
	Full      bool // check all data, not two words a page
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

// run is a measurement. The handlers of an interface run in the goroutine that polls it.
type run struct {
	Spec
	nis         [2]*lnet.NI // client and server
	ctx         context.Context
	fail        func(error)
	begin       time.Time
	rpcs        uint64 // the client's
	threadsLeft int    // threads that go on; the client's
	done        chan struct{}
}

// Run measures once. Any failed RPC ends it with an error.
func Run(ctx context.Context, s Spec) (Result, error) {
	if s.Threads < 1 || s.Threads > MaxThreads || s.Test != Ping && (s.Size < 8 || s.Size > lnet.MaxPayload) {
		return Result{}, fmt.Errorf("selftest: %d threads, %d bytes: %w", s.Threads, s.Size, fabric.ErrInvalid)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r := &run{Spec: s, ctx: ctx, fail: fail, begin: time.Now(), threadsLeft: s.Threads, done: make(chan struct{})}
	f := mem.NewFabric()
	for i := range r.nis {
		n, err := nic.New(nic.Config{Node: fabric.NodeID(i)})
		if err != nil {
			return Result{}, err
		}
		defer n.Close()
		if err = f.Attach(n); err == nil {
			r.nis[i], err = lnet.Open(n, lnet.Config{Immediate: s.Immediate})
		}
		if err != nil {
			return Result{}, err
		}
		defer r.nis[i].Close()
	}
	for i := range s.Threads {
		r.answerRPCs(uint64(i))
	}
	for i := range s.Threads {
		r.doRPCs(uint64(i))
	}
	polling, stop := context.WithCancel(ctx)
	var polls sync.WaitGroup
	for _, ni := range r.nis {
		polls.Go(func() { ni.Run(polling) })
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	seconds := time.Since(r.begin).Seconds()
	stop()
	polls.Wait()
	return Result{r.rpcs, seconds}, context.Cause(ctx)
}

// doRPCs does RPCs, one after the other.
func (r *run) doRPCs(thread uint64) {
	request, reply, bulk := make([]byte, messageLen), make([]byte, messageLen), make([]byte, r.Size)
	number := thread << 32
	md := r.attachMemory(client, 0, thread, request, nil)
	next := func() {
		if number != thread<<32 && time.Since(r.begin) >= r.Duration { // at least one
			if r.threadsLeft--; r.threadsLeft == 0 {
				close(r.done)
			}
			return
		}
		number++
		binary.LittleEndian.PutUint64(request, number)
		if r.Test == Write {
			r.fillData(bulk, number)
		}
		r.failOn(r.nis[client].Put(md, lnet.Request{Target: server, Portal: portalRequest, MatchBits: thread}))
	}
	r.attachMemory(client, portalReply, thread, reply, func(lnet.Event) {
		if binary.LittleEndian.Uint64(reply) != number || r.Test == Read && !r.dataRight(bulk, number) {
			r.fail(ErrData)
			return
		}
		r.rpcs++
		next()
	})
	r.attachMemory(client, portalBulk, thread, bulk, nil)
	next()
}

// answerRPCs answers the RPCs of a thread.
func (r *run) answerRPCs(thread uint64) {
	request, reply, bulk := make([]byte, messageLen), make([]byte, messageLen), make([]byte, r.Size)
	ni := r.nis[server]
	replies := r.attachMemory(server, 0, thread, reply, nil)
	number := func() uint64 { return binary.LittleEndian.Uint64(reply) }
	answer := func() {
		r.failOn(ni.Put(replies, lnet.Request{Target: client, Portal: portalReply, MatchBits: thread}))
	}
	data := r.attachMemory(server, 0, thread, bulk, func(e lnet.Event) {
		switch {
		case e.Type == lnet.EventSend:
		case e.Type == lnet.EventReply && !r.dataRight(bulk, number()):
			r.fail(ErrData)
		default:
			answer()
		}
	})
	r.attachMemory(server, portalRequest, thread, request, func(lnet.Event) {
		copy(reply, request)
		switch q := (lnet.Request{Target: client, Portal: portalBulk, MatchBits: thread, Ack: true}); r.Test {
		case Ping:
			answer()
		case Read:
			r.fillData(bulk, number())
			r.failOn(ni.Put(data, q))
		case Write:
			r.failOn(ni.Get(data, q))
		}
	})
}

func (r *run) failOn(err error) {
	if err != nil {
		r.fail(err)
	}
}

// attachMemory attaches b to a portal, or only binds it to portal 0.
func (r *run) attachMemory(node fabric.NodeID, portal int, bits uint64, b []byte, handler func(lnet.Event)) (md *lnet.MD) {
	d := lnet.MemoryDescriptor{Buffer: b, Threshold: lnet.Unlimited, Options: lnet.OpPut | lnet.OpGet | lnet.ManageRemote,
		Handler: func(e lnet.Event) {
			r.failOn(e.Err)
			if handler != nil && r.ctx.Err() == nil {
				handler(e)
			}
		}}
	var err error
	if portal == 0 {
		md, err = r.nis[node].Bind(d)
	} else {
		md, err = r.nis[node].Attach(portal, lnet.Match{Any: true, Bits: bits}, d)
	}
	r.failOn(err)
	return md
}

// nextWord returns the place of the word after the one at i: the next one, or, as Lustre's
// check=simple does, the last or first one of a page.
func (s Spec) nextWord(i int) int {
	if !s.Full && i%atu.PageSize == 0 {
		return i + atu.PageSize - 8
	}
	return i + 8
}

// fillData writes the data of an RPC: its number and the place, in words of 8 bytes.
func (s Spec) fillData(b []byte, number uint64) {
	for i := 0; i+8 <= len(b); i = s.nextWord(i) {
		binary.LittleEndian.PutUint64(b[i:], number^uint64(i)<<40)
	}
}

func (s Spec) dataRight(b []byte, number uint64) bool {
	for i := 0; i+8 <= len(b); i = s.nextWord(i) {
		if binary.LittleEndian.Uint64(b[i:]) != number^uint64(i)<<40 {
			return false
		}
	}
	return true
}

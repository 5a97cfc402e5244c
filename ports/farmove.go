package ports

import (
	"errors"
	"sync"
	"time"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/attach/wire"
	"exnet/foreign"
)

// Mover moves bytes between memory of this host and of others, many at a time. far.Mover is one,
// and says what its methods do.
type Mover interface {
	Lend(mem []byte, a atu.Access, to fabric.NodeID) (nla atu.NLA, end func(), err error)
	Put(mem []byte, to fabric.NodeID, at atu.NLA) error
	Get(mem []byte, from fabric.NodeID, at atu.NLA) error
}

const (
	// farPart is how many bytes of a GET or a PUT one operation of the Mover moves, farPartOld that
	// of a far node that has not said farLarge, and farParts how many are under way at once for a
	// pair. Each costs both nodes a request, an answer and several wake-ups.
	farPart, farPartOld, farParts = 1 << 20, 256 << 10, 32
	// farLeast is from how many bytes on the Mover is used: fewer go in messages.
	farLeast = 2 << 10
	// farTail is how many bytes at the end of a PUT are written last: SPEC.md 4.
	farTail = 8
)

// errMove says why a Mover could not move a piece: the status for it.
type errMove wire.Status

func (e errMove) Error() string { return "ports: a transfer between hosts failed" }

// moves returns whether n bytes go by the Mover: the far node may be of a release without one.
func (f *farPair) moves(n int) bool {
	return f.knows&farMoves != 0 && f.node.server.cfg.Mover != nil && n >= farLeast
}

// exposed is memory of our port for the NIC: what is there decides nothing here.
func (f *farPair) exposed(piece foreign.Memory) []byte {
	m := f.ours.mapped.memory
	off := int(piece.Addr() - m.Memory().Addr())
	return m.Exposed()[off : off+piece.Len() : off+piece.Len()]
}

// moveRemote has the far node move n bytes between its port, at remote, and ours, at local: to
// ours for OpFarGive, from ours for OpFarTake. data are the bytes that follow them.
func (f *farPair) moveRemote(op wire.Op, local, remote uint64, n int, data []byte) wire.Status {
	a := atu.Access(atu.Write)
	if op == wire.OpFarTake {
		a = atu.Read
	}
	status := wire.StatusOK
	ok := f.local(local, n, func(off int, piece foreign.Memory) {
		if status != wire.StatusOK {
			return
		}
		last := data
		if off+piece.Len() < n {
			last = nil
		}
		status = f.lendPiece(op, piece, a, remote+uint64(off), last)
	})
	if !ok {
		return wire.StatusInvalid
	}
	return status
}

func (f *farPair) lendPiece(op wire.Op, piece foreign.Memory, a atu.Access, remote uint64, data []byte) wire.Status {
	nla, end, err := f.node.server.cfg.Mover.Lend(f.exposed(piece), a, f.node.id)
	if err != nil {
		return wire.StatusFull
	}
	defer end()
	return f.askFarPort(wire.Message{Op: op, B: remote, C: uint64(piece.Len()), D: uint64(nla)}, data).Status
}

// moveLocal answers OpFarGive and OpFarTake: B is an address of our port, C the number of bytes,
// D where they belong in memory that the far node has lent.
func (f *farPair) moveLocal(out *farOut, m farMessage) wire.Status {
	s := f.node.server
	give := m.Op == wire.OpFarGive
	switch {
	case f.pair.unit != fabric.UnitRMA || m.C < 1 || m.C > farPart || len(m.data) > farTail || give && len(m.data) > 0:
		return wire.StatusInvalid
	case s.cfg.Mover == nil:
		return wire.StatusFull
	}
	out.ownerOps(1)
	defer out.ownerOps(^uint64(0))
	access := atu.Access(atu.Read)
	if !give {
		access = atu.Write
	}
	all, n := f.ours.mapped.ofPort(f.ours.vpid), int(m.C)
	ok, err := all.Each(atu.NLA(m.B), n+len(m.data), access, f.node.id, func(off int, piece foreign.Memory) error {
		k := min(piece.Len(), max(n-off, 0))
		if k > 0 {
			if why := f.movePiece(piece.Part(0, k), access, atu.NLA(m.D)+atu.NLA(off)); why != wire.StatusOK {
				return errMove(why)
			}
		}
		if k < piece.Len() {
			wire.FillInOrder(piece.Part(k, piece.Len()-k), m.data[off+k-n:])
		}
		return nil
	})
	var why errMove
	switch {
	case errors.As(err, &why):
		return wire.Status(why)
	case !ok:
		return wire.StatusDenied
	}
	// A port that has ended has no memory: zeros may have been read.
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.state.lasts() {
		return wire.StatusNoPort
	}
	return wire.StatusOK
}

// How long a transfer that a link has cut pauses before it is begun once more.
const (
	againFirst = time.Millisecond
	againLast  = 100 * time.Millisecond
)

// movePiece moves a piece of our port's memory, and waits for the end: to theirs if ours is only
// read. What a link has cut is moved once more, as long as the pair lasts.
func (f *farPair) movePiece(piece foreign.Memory, ours atu.Access, theirs atu.NLA) wire.Status {
	v, to := f.node.server.cfg.Mover, f.node.id
	move := v.Get
	if ours == atu.Read {
		move = v.Put
	}
	err := move(f.exposed(piece), to, theirs)
	for pause := againFirst; errors.Is(err, fabric.ErrPeerDown) || errors.Is(err, fabric.ErrNoRoute); pause = min(2*pause, againLast) {
		select {
		case <-f.ended:
			return wire.StatusNoNode
		case <-time.After(pause):
		}
		err = move(f.exposed(piece), to, theirs)
	}
	switch {
	case err == nil:
		return wire.StatusOK
	case errors.Is(err, fabric.ErrAgain):
		return wire.StatusFull
	case errors.Is(err, fabric.ErrProtection): // the far node has taken its memory back
		return wire.StatusDenied
	}
	return wire.StatusNoNode
}

// partSize is how many bytes the far node moves by one operation.
func (f *farPair) partSize() int {
	if f.knows&farLarge != 0 {
		return farPart
	}
	return farPartOld
}

// eachPart calls move for the parts of n bytes, farParts of them at a time, and returns the
// status of one that failed.
func (f *farPair) eachPart(n int, move func(off, n int) wire.Status) wire.Status {
	part := f.partSize()
	if n > 0 && n <= part { // without a goroutine more
		f.moving <- struct{}{}
		defer func() { <-f.moving }()
		return move(0, n)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	status := wire.StatusOK
	for off := 0; off < n; off += part {
		f.moving <- struct{}{}
		all.Go(func() {
			defer func() { <-f.moving }()
			if why := move(off, min(part, n-off)); why != wire.StatusOK {
				mu.Lock()
				status = why
				mu.Unlock()
			}
		})
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	return status
}

// getFromFar GETs n bytes of the far port's memory into ours.
func (f *farPair) getFromFar(remote, local uint64, n int) wire.Status {
	if f.moves(n) {
		why := f.eachPart(n, func(off, n int) wire.Status {
			return f.moveRemote(wire.OpFarGive, local+uint64(off), remote+uint64(off), n, nil)
		})
		if why != wire.StatusFull {
			return why
		}
	}
	for off := 0; off < n; off += farChunk {
		size := min(farChunk, n-off)
		f.moving <- struct{}{}
		a := f.askFarPort(wire.Message{Op: wire.OpFarGet, B: remote + uint64(off), C: uint64(size)}, nil)
		<-f.moving
		if a.Status != wire.StatusOK {
			return a.Status
		}
		if len(a.data) != size || !f.local(local+uint64(off), size, func(at int, piece foreign.Memory) { wire.FillInOrder(piece, a.data[at:]) }) {
			return wire.StatusInvalid
		}
	}
	return wire.StatusOK
}

// putToFar PUTs n bytes of our port's memory into the far one's. An aligned word at the end
// arrives last.
func (f *farPair) putToFar(local, remote uint64, n int) wire.Status {
	if f.moves(n) {
		last := (n-1)%f.partSize() + 1 // the part at the end
		why := f.eachPart(n-last, func(off, n int) wire.Status {
			return f.moveRemote(wire.OpFarTake, local+uint64(off), remote+uint64(off), n, nil)
		})
		if why == wire.StatusOK {
			why = f.giveLast(local+uint64(n-last), remote+uint64(n-last), last)
		}
		if why != wire.StatusFull {
			return why
		}
	}
	b := make([]byte, n)
	if !f.local(local, n, func(off int, piece foreign.Memory) { piece.CopyTo(b[off:]) }) {
		return wire.StatusInvalid
	}
	return f.giveBytes(b, remote)
}

// giveLast is give of the last part.
func (f *farPair) giveLast(local, remote uint64, n int) wire.Status {
	tail := make([]byte, min(farTail, n))
	n -= len(tail)
	if !f.local(local+uint64(n), len(tail), func(off int, piece foreign.Memory) { piece.CopyTo(tail[off:]) }) {
		return wire.StatusInvalid
	}
	if n < farLeast {
		b := make([]byte, n, n+len(tail))
		if !f.local(local, n, func(off int, piece foreign.Memory) { piece.CopyTo(b[off:]) }) {
			return wire.StatusInvalid
		}
		return f.giveBytes(append(b, tail...), remote)
	}
	return f.moveRemote(wire.OpFarTake, local, remote, n, tail)
}

// giveBytes PUTs bytes by messages.
func (f *farPair) giveBytes(b []byte, remote uint64) wire.Status {
	for off := 0; off < len(b); off += farChunk {
		a := f.askFarPort(wire.Message{Op: wire.OpFarPut, B: remote + uint64(off)}, b[off:min(off+farChunk, len(b))])
		if a.Status != wire.StatusOK {
			return a.Status
		}
	}
	return wire.StatusOK
}

package rawbench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/shm"
	"exnet/internal/tcpbench"
)

const (
	ringSize  = 2 << 20              // as a direct connection's by default
	ringChunk = 64 << 10             // bytes of a copy at most
	ringTry   = 5 * time.Millisecond // for each way to copy, before the warm-up
	ringTries = 3

	// Offsets of the words in the first page, each on a pair of cache lines of its own.
	putOff, gotOff, stopOff, pastOff = 0, 128, 256, 384
)

// bareRing is one end of a ring.
type bareRing struct {
	mem  *shm.Foreign
	data foreign.Memory
	put  *atomic.Uint64 // bytes that were written, a count from 0
	got  *atomic.Uint64 // bytes that were read
	stop *atomic.Uint64 // 1: it was enough
	past *atomic.Uint64 // 1: the sender copies past the caches

	moved, other uint64 // bytes that this end has moved, and that the other one had when this looked
	chosen       bool   // the reader has chosen past

	conn   *net.UnixConn
	down   chan struct{} // closed when the other end has gone
	yields bool          // both ends are on one CPU
	spins  int
}

func init() { tcpbench.AddTransport(Ring, newBareRing) }

// newBareRing makes the end of the process that listens, whose memory it is, or of the one that
// connects. It takes c.
func newBareRing(s tcpbench.Spec, c *net.UnixConn, listens bool) (_ io.ReadWriteCloser, err error) {
	if s.Kind != tcpbench.Stream {
		return nil, errors.Join(fmt.Errorf("%s cannot be measured over %s", s.Kind, Ring), c.Close())
	}
	r := &bareRing{conn: c, down: make(chan struct{}), yields: s.CPUs.Client == s.CPUs.Server && s.CPUs.Client != tcpbench.AnyCPU}
	if listens {
		if r.mem, err = shm.CreateShared("exnet-ring", shm.PageSize+ringSize); err == nil {
			_, _, err = c.WriteMsgUnix([]byte{0}, unix.UnixRights(r.mem.Fd()), nil)
		}
	} else {
		r.mem, err = receiveRing(c)
	}
	if err != nil {
		close(r.down)
		return nil, errors.Join(err, r.Close())
	}
	all := r.mem.Memory()
	word := func(off int) *atomic.Uint64 { return &all.Words(off, 1)[0] }
	r.put, r.got, r.stop, r.past = word(putOff), word(gotOff), word(stopOff), word(pastOff)
	r.data = all.Part(shm.PageSize, ringSize)
	go func() {
		defer close(r.down)
		_, _ = c.Read(make([]byte, 1)) // nothing is sent: it returns when an end is closed
	}()
	return r, nil
}

// receiveRing maps the memory whose descriptor the other end sends.
func receiveRing(c *net.UnixConn) (*shm.Foreign, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, fmt.Errorf("the other end sent no memory: %v", err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("the other end sent no memory: %v", err)
	}
	defer unix.Close(fds[0])
	return shm.MapShared(fds[0], shm.PageSize+ringSize, shm.PageSize+ringSize, shm.SharedSeals, true)
}

// Close tells the other end that it was enough.
func (r *bareRing) Close() error {
	if r.stop != nil {
		r.stop.Store(1)
	}
	err := r.conn.Close()
	<-r.down
	if r.mem != nil {
		r.mem.Retire()
	}
	return err
}

// idle is called when there was nothing to do; it reports that the other end has gone.
func (r *bareRing) idle() error {
	r.spins++
	if r.yields || r.spins%4096 == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	} else {
		shm.Pause(1)
	}
	if r.spins%4096 != 0 {
		return nil
	}
	select {
	case <-r.down:
		return errDown
	default:
		return nil
	}
}

// Write copies p into the ring.
func (r *bareRing) Write(p []byte) (n int, err error) {
	for n < len(p) {
		place := int(r.moved % ringSize)
		k := min(ringChunk, len(p)-n, ringSize-place)
		for ; r.moved+uint64(k)-r.other > ringSize; r.other = r.got.Load() {
			if r.stop.Load() != 0 {
				return n, errStopped
			}
			if err := r.idle(); err != nil {
				return n, err
			}
		}
		if r.past.Load() != 0 {
			shm.FillPast(r.data.Part(place, k), p[n:n+k])
		} else {
			r.data.Part(place, k).Fill(p[n : n+k])
		}
		n += k
		r.moved += uint64(k)
		r.put.Store(r.moved)
	}
	return n, nil
}

// Read copies what there is, as far as it fits, out of the ring.
func (r *bareRing) Read(p []byte) (n int, err error) {
	if !r.chosen {
		r.chosen = true
		if err := r.choose(p); err != nil {
			return 0, err
		}
	}
	for ; r.other == r.moved; r.other = r.put.Load() {
		if err := r.idle(); err != nil {
			return 0, err
		}
	}
	for n < len(p) && r.other != r.moved {
		place := int(r.moved % ringSize)
		k := min(ringChunk, len(p)-n, int(r.other-r.moved), ringSize-place)
		r.data.Part(place, k).CopyTo(p[n : n+k])
		n += k
		r.moved += uint64(k)
		r.got.Store(r.moved)
	}
	return n, nil
}

// choose tries both ways in turn, and has the sender go on by the faster one: the bound is that of
// whoever copies well, however far the CPUs are.
func (r *bareRing) choose(buf []byte) error {
	var most [2]float64
	for i := range 2 * ringTries {
		way := i % 2
		r.past.Store(uint64(way))
		bytes, start := 0, time.Now()
		for time.Since(start) < ringTry {
			n, err := r.Read(buf)
			if err != nil {
				return err
			}
			bytes += n
		}
		most[way] = max(most[way], float64(bytes)/time.Since(start).Seconds())
	}
	if most[0] >= most[1] {
		r.past.Store(0)
	}
	return nil
}

package rawbench

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/foreign"
	"exnet/internal/shm"
	"exnet/internal/tcpbench"
)

// Ring is no unit of the NIC, but what bounds a stream over direct sockets: a bare ring between two
// processes, a copy into it and one out of it.
const Ring Unit = "ring"

const (
	ringSize  = 2 << 20  // as a direct connection's by default
	ringChunk = 64 << 10 // bytes of a copy at most
	ringLook  = 256 << 10
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

	conn   *net.UnixConn
	down   chan struct{} // closed when the other end has gone
	yields bool          // both ends are on one CPU
	spins  int
}

// newBareRing makes the end of the process that listens, whose memory it is, or of the one that
// connects. It takes c.
func newBareRing(c *net.UnixConn, listens bool, cpus tcpbench.Placement) (r *bareRing, err error) {
	r = &bareRing{conn: c, down: make(chan struct{}), yields: cpus.Client == cpus.Server && cpus.Client != tcpbench.AnyCPU}
	if listens {
		if r.mem, err = shm.CreateShared("exnet-ring", shm.PageSize+ringSize); err == nil {
			_, _, err = c.WriteMsgUnix([]byte{0}, unix.UnixRights(r.mem.Fd()), nil)
		}
	} else {
		r.mem, err = receiveRing(c)
	}
	if err != nil {
		close(r.down)
		return nil, errors.Join(err, r.close())
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

func (r *bareRing) close() error {
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

// sends writes messages of size bytes until the other end has counted enough.
func (r *bareRing) sends(size int) (found, error) {
	msg := make([]byte, size)
	for i := range msg {
		msg[i] = byte(i)
	}
	start, cpu := time.Now(), cpuTime()
	put, got := uint64(0), uint64(0)
	for at, n := 0, 0; r.stop.Load() == 0; at += n {
		if at == size {
			at = 0
		}
		place := int(put % ringSize)
		n = min(ringChunk, size-at, ringSize-place)
		for got = max(got, r.got.Load()); put+uint64(n)-got > ringSize && r.stop.Load() == 0; got = r.got.Load() {
			if err := r.idle(); err != nil && r.stop.Load() == 0 {
				return found{}, err
			}
		}
		if put+uint64(n)-got > ringSize {
			break // stopped
		}
		if r.past.Load() != 0 {
			shm.FillPast(r.data.Part(place, n), msg[at:at+n])
		} else {
			r.data.Part(place, n).Fill(msg[at : at+n])
		}
		put += uint64(n)
		r.put.Store(put)
	}
	return found{Seconds: time.Since(start).Seconds(), CPU: (cpuTime() - cpu).Seconds()}, nil
}

// receives reads until it is enough, and counts.
func (r *bareRing) receives(spec tcpbench.Spec) (found, error) {
	defer r.stop.Store(1)
	buf := make([]byte, max(spec.Size, ringChunk))
	got, at := uint64(0), 0
	// take reads what there is, ringLook bytes and a chunk at most.
	take := func() (n int, err error) {
		for n < ringLook {
			put := r.put.Load()
			for ; put == got; put = r.put.Load() {
				if err := r.idle(); err != nil {
					return n, err
				}
			}
			for put != got && n < ringLook {
				place := int(got % ringSize)
				k := min(ringChunk, int(put-got), ringSize-place, len(buf)-at)
				r.data.Part(place, k).CopyTo(buf[at : at+k])
				if at += k; at == len(buf) {
					at = 0
				}
				n += k
				got += uint64(k)
				r.got.Store(got)
			}
		}
		return n, nil
	}
	if err := r.choose(take); err != nil {
		return found{}, err
	}
	c := newClock(spec)
	for !c.done {
		n, err := take()
		if err != nil {
			return found{}, err
		}
		c.add(int64(n))
	}
	return c.found(nil), nil
}

// choose tries both ways in turn, and has the sender go on by the faster one: the bound is that of
// whoever copies well, however far the CPUs are.
func (r *bareRing) choose(take func() (int, error)) error {
	var most [2]float64
	for i := range 2 * ringTries {
		way := i % 2
		r.past.Store(uint64(way))
		bytes, start := 0, time.Now()
		for time.Since(start) < ringTry {
			n, err := take()
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

// ringEnd measures by one end of a ring: the process that listens reads.
func ringEnd(j Job, c *net.UnixConn) (f found, err error) {
	if j.Spec.Kind != tcpbench.Stream {
		return f, errors.Join(fmt.Errorf("%s cannot be measured over %s", j.Spec.Kind, j.Unit), c.Close())
	}
	r, err := newBareRing(c, j.Listens, j.Spec.CPUs)
	if err != nil {
		return f, err
	}
	if j.Listens {
		f, err = onThread(j.Spec.CPUs.Server, func() (found, error) { return r.receives(j.Spec) })
	} else {
		f, err = onThread(j.Spec.CPUs.Client, func() (found, error) { return r.sends(j.Spec.Size) })
	}
	return f, errors.Join(err, r.close())
}

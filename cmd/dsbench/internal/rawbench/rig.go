package rawbench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/link/shm"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
)

// Tags of VELO messages.
const (
	tagData  = iota // what is measured
	tagHello        // the addresses of the sender's regions
	tagStop         // the measurement has ended
)

const vpid = 1

// stop is the message with which a measurement ends; VELO has no empty ones.
var stop = []byte{0}

// errDown says that the other end has gone.
var errDown = errors.New("the other node has gone")

// rig is one end: a NIC with both units open, and a region to read from and one
// to write to, for messages of size bytes.
type rig struct {
	nic  *nic.NIC
	velo *velo.Endpoint
	rma  *rma.Endpoint
	peer fabric.NodeID
	down <-chan struct{}
	size int

	source, sink       *atu.Region
	toSource, toSink   atu.NLA // lent to the peer
	farSource, farSink atu.NLA // the peer's
	spins              int
}

// startTime is how long the other process may take to begin, on a machine that is busy.
const startTime = time.Minute

// newRig opens an end, and joins it with that of the process at the other end of a socket,
// which it takes. The end that listens is node 1, the other one 0.
func newRig(size int, meet *net.UnixConn, listens bool) (*rig, error) {
	r := &rig{peer: 1, size: size}
	if listens {
		r.peer = 0
	}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, meet.Close())
	}
	l, err := shm.Connect(r.nic, meet, shm.Config{HelloTimeout: startTime})
	if err != nil {
		return nil, err
	}
	r.down = l.Done()
	if err := r.share(); err != nil {
		return nil, err
	}
	return r, r.meet()
}

func (r *rig) open() (err error) {
	if r.nic, err = nic.New(nic.Config{Node: 1 - r.peer}); err != nil {
		return err
	}
	if r.velo, err = r.nic.OpenVELO(vpid, velo.Config{}); err != nil {
		return err
	}
	r.rma, err = r.nic.OpenRMA(vpid, rma.Config{})
	return err
}

// share registers memory, and tells the peer where it is.
func (r *rig) share() error {
	for _, x := range []struct {
		region **atu.Region
		nla    *atu.NLA
		access atu.Access
	}{{&r.source, &r.toSource, atu.Read}, {&r.sink, &r.toSink, atu.Read | atu.Write}} {
		mem, err := r.nic.ATU().Alloc(r.size)
		if err != nil {
			return err
		}
		if *x.region, err = r.nic.ATU().Register(vpid, mem, x.access); err != nil {
			return err
		}
		if *x.nla, err = (*x.region).Lend(r.peer); err != nil {
			return err
		}
	}
	for r.velo.Credits(r.peer, vpid) == 0 { // it has not opened its mailbox yet
		if err := r.idle(); err != nil {
			return err
		}
	}
	hello := binary.LittleEndian.AppendUint64(nil, uint64(r.toSource))
	hello = binary.LittleEndian.AppendUint64(hello, uint64(r.toSink))
	return r.send(tagHello, hello)
}

// meet waits for the peer's addresses.
func (r *rig) meet() error {
	tag, msg, err := r.receive()
	if err != nil {
		return err
	}
	if tag != tagHello || len(msg) != 16 {
		return fmt.Errorf("the other node began with message %d of %d bytes", tag, len(msg))
	}
	r.farSource = atu.NLA(binary.LittleEndian.Uint64(msg))
	r.farSink = atu.NLA(binary.LittleEndian.Uint64(msg[8:]))
	r.velo.Advance()
	return nil
}

// idle is called when there was nothing to do; it reports that the peer has gone.
func (r *rig) idle() error {
	if r.spins++; r.spins%4096 != 0 {
		return nil
	}
	select {
	case <-r.down:
		return errDown
	default:
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // the peer may be on this CPU
		return nil
	}
}

// send sends a message as soon as there is credit.
func (r *rig) send(tag uint8, msg []byte) error {
	d := velo.Descriptor{Dst: r.peer, VPID: vpid, Tag: tag}
	for {
		if err := r.velo.Send(d, msg); !errors.Is(err, fabric.ErrAgain) {
			return err
		}
		if err := r.idle(); err != nil {
			return err
		}
	}
}

// receive waits for a message, which it lends until Advance.
func (r *rig) receive() (tag uint8, msg []byte, err error) {
	for {
		if st, p, ok := r.velo.Peek(); ok {
			return st.Tag, p, nil
		}
		if err := r.idle(); err != nil {
			return 0, nil, err
		}
	}
}

// stopped reports that the peer has ended the measurement.
func (r *rig) stopped() bool {
	st, _, ok := r.velo.Peek()
	return ok && st.Tag == tagStop
}

// notified waits for a completer's notification: of a GET of ours, or a PUT of the
// peer's. io.EOF: the peer has ended the measurement.
func (r *rig) notified() error {
	for spins := 1; ; spins++ {
		if n, ok := r.rma.Next(); ok {
			if err := n.Status.Err(); err != nil || n.Writer == rma.Completer {
				return err
			}
			continue
		}
		if spins%1024 == 0 && r.stopped() {
			return io.EOF
		}
		if err := r.idle(); err != nil {
			return err
		}
	}
}

// Close ends the measurement. It takes what is under way, so that the peer has credit until it
// has seen that, and has answered.
func (r *rig) Close() error {
	if err := r.send(tagStop, stop); err != nil {
		return err
	}
	for {
		tag, _, err := r.receive()
		if err != nil || tag == tagStop {
			return err
		}
		r.velo.Advance()
	}
}

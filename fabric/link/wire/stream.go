package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Stream is a medium over an ordered byte stream, such as a TCP connection between hosts: before
// each packet its length, 2 bytes, little endian. What the peer does not take in time is lost.
//
// Concurrency: all methods may be called from many goroutines.
type Stream struct {
	conn  net.Conn
	in    *bufio.Reader // the receiver's
	way   *way
	queue chan []byte // packets to be sent
	done  chan struct{}
	once  sync.Once
}

// lengthLen is the length of what precedes a packet.
const lengthLen = 2

// OverStream returns the medium that c is, after an exchange of hellos with the other end's
// OverStream. It takes c, even if it fails. Packets to the other end meet the faults f.
// ErrFaults, ErrHello, ErrVersion: see there.
func OverStream(c net.Conn, f Faults) (*Stream, error) {
	m := &Stream{conn: c, in: bufio.NewReader(c), queue: make(chan []byte, pipeQueue), done: make(chan struct{})}
	var err error
	if m.way, err = newWay(f, packetQueue(m.queue), false); err == nil {
		err = exchangeHellos(c, func(b []byte) (int, error) { return io.ReadFull(m.in, b[:helloLen]) })
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go m.writeQueued()
	return m, nil
}

// writeQueued sends what is queued, as much as there is at a time, until Close.
func (m *Stream) writeQueued() {
	out := bufio.NewWriterSize(m.conn, Window*(lengthLen+MaxPacket))
	for {
		select {
		case p := <-m.queue:
			var length [lengthLen]byte
			binary.LittleEndian.PutUint16(length[:], uint16(len(p)))
			_, _ = out.Write(length[:]) // an error stays until Flush
			_, err := out.Write(p)
			if err == nil && len(m.queue) == 0 {
				err = out.Flush()
			}
			if err != nil {
				_ = m.Close() // Receive ends with it
				return
			}
		case <-m.done:
			return
		}
	}
}

// Send implements Medium.
func (m *Stream) Send(p []byte) error {
	select {
	case <-m.done:
		return net.ErrClosed
	default:
	}
	return m.way.send(p)
}

// Receive implements Medium.
func (m *Stream) Receive(p []byte) (int, error) {
	var length [lengthLen]byte
	if _, err := io.ReadFull(m.in, length[:]); err != nil {
		return 0, m.receiveError(err)
	}
	n := int(binary.LittleEndian.Uint16(length[:]))
	if n > MaxPacket || n > len(p) {
		return 0, fmt.Errorf("%w: a packet of %d bytes", errBreach, n)
	}
	if _, err := io.ReadFull(m.in, p[:n]); err != nil {
		return 0, m.receiveError(err)
	}
	return n, nil
}

// receiveError is the error of a connection as Receive has it.
func (m *Stream) receiveError(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// SetFaults changes what happens to the packets that this end sends. ErrFaults: it
// cannot be.
func (m *Stream) SetFaults(f Faults) error { return m.way.setFaults(f) }

// Close implements Medium. It does not wait for what the peer does not take.
func (m *Stream) Close() error {
	var err error
	m.once.Do(func() {
		close(m.done)
		m.way.stop()
		conn := m.conn
		if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = t.NetConn() // package tls would send its alert, for which it may have to wait
		}
		err = conn.Close()
	})
	return err
}

var _ Medium = (*Stream)(nil)

package killmatrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/broker"
)

// request is a line for a peer, and reply what it answers. testdata/peer.py
// understands the same.
type request struct {
	Op   string `json:"op"`   // listen, unlisten, accept, dial, read, pump, leave, pass, finish, stat, close, broker
	ID   int    `json:"id"`   // of a connection or a listener
	Kind string `json:"kind"` // tcp or direct
	Addr string `json:"addr"`
	From int    `json:"from"` // the listener to accept from
	// Size of a write in bytes, 0: none; Pause after it in microseconds.
	Size  int  `json:"size"`
	Pause int  `json:"pause"`
	Hold  bool `json:"hold"`  // do not read
	Dial  int  `json:"dial"`  // limit of a dial, ms
	MS    int  `json:"ms"`    // limit of every later call of that connection; 0: none
	Reset bool `json:"reset"` // begin the longest times of a stat anew
	// Buffer is the size in bytes of the buffer that a dial sends from or an accept receives in; 0:
	// as the kernel has it.
	Buffer int `json:"buffer"`
}

type reply struct {
	Err  string `json:"err"`
	Addr string `json:"addr"` // own
	Took int64  `json:"took"` // ns
	Stat stat   `json:"stat"`
}

// stat is what a connection has done.
type stat struct {
	TX way `json:"tx"`
	RX way `json:"rx"`
}

// way is one direction, seen from its end here. Times are CLOCK_MONOTONIC, ns.
type way struct {
	Bytes    int64  `json:"bytes"`
	Bad      int64  `json:"bad"`      // that are not what was sent
	End      string `json:"end"`      // why it has ended; "": it has not
	EndAt    int64  `json:"end_at"`   //
	Timeouts int    `json:"timeouts"` // calls that ended at their deadline
	Timeout  int64  `json:"timeout"`  // when the last of these did
	Longest  int64  `json:"longest"`  // call, ns, a present one counted
	Gap      int64  `json:"gap"`      // longest time without a byte, ns
	Busy     bool   `json:"busy"`     // in a call
}

// The streams of both directions repeat this block: a prime length, so that
// no piece of a ring or page is like the one before.
const blockLen = 65521

// pattern has enough of the stream to write any piece of maxPiece from any offset.
var pattern = func() []byte {
	b := make([]byte, blockLen, blockLen+maxPiece)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13)
	}
	for len(b) < cap(b) {
		b = append(b, b[:min(blockLen, cap(b)-len(b))]...)
	}
	return b
}()

const maxPiece = 256 << 10

// monotonic is CLOCK_MONOTONIC, which all processes share.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// class names the end of a direction.
func class(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "end of file"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EPIPE):
		return "pipe"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "unreachable"
	}
	return err.Error()
}

// peer is a process of the matrix: client, server, bystander or broker.
type peer struct {
	conns     map[int]*pumped
	listeners map[int]net.Listener
}

// runPeer is the process: it answers the lines of its input until that ends.
func runPeer() int {
	p := &peer{conns: make(map[int]*pumped), listeners: make(map[int]net.Listener)}
	fmt.Println("{}")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var q request
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		start := time.Now()
		r, err := p.do(q)
		if err != nil {
			r.Err = class(err)
		}
		r.Took = time.Since(start).Nanoseconds()
		text, err := json.Marshal(r)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("%s\n", text)
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (p *peer) do(q request) (r reply, err error) {
	switch q.Op {
	case "broker": // of this namespace, until the process ends
		s, err := broker.New(broker.Config{})
		if err != nil {
			return r, err
		}
		go s.Run(context.Background())
		return r, nil
	case "listen":
		l, err := listen(q.Kind, q.Addr)
		if err != nil {
			return r, err
		}
		p.listeners[q.ID] = l
		r.Addr = l.Addr().String()
		return r, nil
	case "unlisten":
		l := p.listeners[q.ID]
		delete(p.listeners, q.ID)
		return r, l.Close()
	case "accept":
		l := p.listeners[q.From]
		d := l.(interface{ SetDeadline(time.Time) error })
		if err := d.SetDeadline(time.Now().Add(acceptTime)); err != nil {
			return r, err
		}
		c, err := l.Accept()
		if err != nil {
			return r, err
		}
		return p.add(q, c, c.(buffered).SetReadBuffer)
	case "dial":
		c, err := dial(q.Kind, q.Addr, time.Duration(q.Dial)*time.Millisecond)
		if err != nil {
			return r, err
		}
		return p.add(q, c, c.(buffered).SetWriteBuffer)
	}
	c := p.conns[q.ID]
	if c == nil {
		return r, fmt.Errorf("%s: no connection %d", q.Op, q.ID)
	}
	switch q.Op {
	case "read":
		c.read(q.Hold)
	case "pump":
		c.write(q.Size, time.Duration(q.Pause)*time.Microsecond)
	case "leave":
		return r, c.conn.(*directsockets.Conn).Demote()
	case "pass":
		return r, c.pass()
	case "finish":
		c.finish()
	case "stat":
		r.Stat = c.stat(q.Reset)
	case "close":
		delete(p.conns, q.ID)
		c.close()
	default:
		return r, fmt.Errorf("no such operation: %s", q.Op)
	}
	return r, nil
}

// buffered is a connection whose buffers in the kernel have sizes.
type buffered interface {
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

func (p *peer) add(q request, c net.Conn, resize func(int) error) (reply, error) {
	if q.Buffer > 0 {
		if err := resize(q.Buffer); err != nil {
			return reply{}, errors.Join(err, c.Close())
		}
	}
	p.conns[q.ID] = newPumped(c, time.Duration(q.MS)*time.Millisecond)
	return reply{Addr: c.LocalAddr().String()}, nil
}

func listen(kind, addr string) (net.Listener, error) {
	if kind == "direct" {
		return directsockets.Listen("tcp", addr)
	}
	return net.Listen("tcp", addr)
}

func dial(kind, addr string, limit time.Duration) (net.Conn, error) {
	if kind == "direct" {
		return directsockets.DialTimeout("tcp", addr, limit)
	}
	return net.DialTimeout("tcp", addr, limit)
}

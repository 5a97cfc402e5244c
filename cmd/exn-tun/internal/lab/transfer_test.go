package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// pipe is a connection whose sender can end its direction. change is done to
// what is sent.
type pipe struct {
	io.Reader
	w      *io.PipeWriter
	change func([]byte)
}

func (p pipe) Write(b []byte) (int, error) {
	if p.change != nil {
		b = append([]byte(nil), b...)
		p.change(b)
	}
	return p.w.Write(b)
}

func (p pipe) CloseWrite() error { return p.w.Close() }

// answered runs both ends of a transfer over pipes.
func answered(change func([]byte), n int64) error {
	there, sent := io.Pipe()
	back, answer := io.Pipe()
	go func() {
		_ = answerSum(struct {
			io.Reader
			io.Writer
		}{there, answer}) // the sender sees what comes of it
		answer.Close()
	}()
	return sendForSum(pipe{back, sent, change}, n)
}

func TestSum(t *testing.T) {
	for _, n := range []int64{0, 1, 128 << 10, 1 << 20} {
		if err := answered(nil, n); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestSumFindsDamage(t *testing.T) {
	done := false
	flip := func(b []byte) {
		if !done {
			b[len(b)/2] ^= 0x10
			done = true
		}
	}
	if err := answered(flip, 1<<20); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("a flipped bit: %v, want an error", err)
	}
}

func TestSumNeedsTheWholeAnswer(t *testing.T) {
	_, sent := io.Pipe()
	if err := sendForSum(pipe{strings.NewReader("short"), sent, nil}, 0); err == nil {
		t.Error("an answer that is cut off passes")
	}
}

// TestStall: a reader that gets bytes is given the whole limit again, and one
// that gets none fails.
func TestStall(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	long := stallReader{&deadlines{Conn: a}, time.Hour}
	for range 3 {
		go b.Write([]byte("x"))
		if n, err := long.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	if n := long.Conn.(*deadlines).set; n != 3 {
		t.Errorf("3 reads set the deadline %d times", n)
	}
	short := stallReader{a, 10 * time.Millisecond}
	if _, err := short.Read(make([]byte, 2)); err == nil || err.Error() != "nothing arrived for 10ms" {
		t.Errorf("a peer that is silent: %v", err)
	}
}

// deadlines counts how often a read deadline is set.
type deadlines struct {
	net.Conn
	set int
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set++
	return d.Conn.SetReadDeadline(t)
}

func TestRootTransfer(t *testing.T) {
	leavesNothing(t)
	ns := loopbackNS(t)
	for f, addr := range map[Family]string{V4: "127.0.0.1", V6: "::1"} {
		e := End{ns, map[Family]netip.Addr{f: netip.MustParseAddr(addr)}}
		if err := Transfer(t.Context(), Path{"lo", e, e}, f, "cubic", 1<<20); err != nil {
			t.Errorf("%v: %v", f, err)
		}
		if err := Transfer(t.Context(), Path{"lo", e, e}, f, "nosuch", 1<<20); err == nil {
			t.Errorf("%v: an unknown congestion control passes", f)
		}
	}
}

// TestRootTransferEnds: a transfer ends with its context, or when one end
// fails, and not by itself because nothing moves.
func TestRootTransferEnds(t *testing.T) {
	leavesNothing(t)
	ns := loopbackNS(t)
	lo := netip.MustParseAddr("127.0.0.1")
	here := End{ns, map[Family]netip.Addr{V4: lo}}

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	err := Transfer(ctx, Path{"lo", here, here}, V4, "cubic", 1<<40)
	if err == nil {
		t.Error("cancelled: no error")
	}

	elsewhere := End{loopbackNS(t), here.Addrs}
	err = Transfer(t.Context(), Path{"lo", elsewhere, here}, V4, "cubic", 1<<20)
	var op *net.OpError
	if !errors.As(err, &op) {
		t.Errorf("to an address where nobody listens: %v", err)
	}
}

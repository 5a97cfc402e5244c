package relay

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/internal/leaktest"
)

var newest = uint32(Versions.Newest)

func TestMain(m *testing.M) { leaktest.Main(m) }

// host is a node with an Engine.
type host struct {
	t      *testing.T
	fabric *mem.Fabric // where the test may attach another one
	nic    *nic.NIC
	engine *Engine
	stop   func()
	offers chan Offer
	mu     sync.Mutex
	notes  []string
}

func (h *host) heard() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.notes...)
}

// newHosts makes nodes 1 to n of a fabric in this process.
func newHosts(t *testing.T, n int, change func(*Config)) []*host {
	t.Helper()
	f := mem.NewFabric()
	hosts := make([]*host, n)
	for i := range hosts {
		card, err := nic.New(nic.Config{Node: fabric.NodeID(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Attach(card); err != nil {
			t.Fatal(err)
		}
		hosts[i] = newHost(t, card, change)
	}
	return hosts
}

func newHost(t *testing.T, card *nic.NIC, change func(*Config)) *host {
	t.Helper()
	h := &host{t: t, nic: card, offers: make(chan Offer, 100)}
	cfg := Config{
		NIC:     card,
		Offered: func(o Offer) { h.offers <- o },
		Note: func(from fabric.NodeID, b []byte) {
			h.mu.Lock()
			h.notes = append(h.notes, string(b))
			h.mu.Unlock()
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if h.engine, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.engine.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := h.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		h.stop()
		_ = card.Close()
	})
	return h
}

var (
	clientAddr = netip.MustParseAddrPort("10.0.0.1:40000")
	serverAddr = netip.MustParseAddrPort("10.0.0.2:80")
)

// call has a program on the first host offer a connection to the second host.
func (h *host) call(t *testing.T, to *host, size segment.Config) *segment.End {
	t.Helper()
	return h.callWith(t, to, size, func([]byte) {})
}

// callOld is call of a program that does not know PAUSE.
func (h *host) callOld(t *testing.T, to *host, size segment.Config) *segment.End {
	t.Helper()
	const flags, pauses = 512 + 140, 1 // SPEC 2.2: of side 0, the second byte
	return h.callWith(t, to, size, func(mem []byte) { mem[flags+1] &^= pauses })
}

func (h *host) callWith(t *testing.T, to *host, size segment.Config, change func(mem []byte)) *segment.End {
	t.Helper()
	seg, err := segment.Create(segment.Info{Nonce: segment.NewNonce(), Client: clientAddr, Server: serverAddr}, size)
	if err != nil {
		t.Fatal(err)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := segment.NewEnd(seg, segment.Client, bells[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	change(seg.Exposed())
	fd, err := unix.FcntlInt(uintptr(seg.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.engine.Offer(to.nic.ID(), 7, false, fd, bells[1]); err != nil {
		t.Fatal(err)
	}
	return e
}

// answer has a program take the connection that was offered to it.
func (h *host) answer(t *testing.T) *segment.End {
	t.Helper()
	o := <-h.offers
	seg, err := segment.Map(o.Segment)
	_ = unix.Close(o.Segment)
	if err != nil {
		t.Fatal(err)
	}
	if o.ID != 7 || seg.Info() != o.Info || o.Info.Client != clientAddr || o.Info.Server != serverAddr {
		t.Fatalf("offer %+v of a segment of %+v", o, seg.Info())
	}
	e, err := segment.NewEnd(seg, segment.Server, o.Bell, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	if err := e.Attach(); err != nil {
		t.Fatal(err)
	}
	return e
}

// hang is when a test gives up: nothing takes so long.
const hang = 2 * time.Minute

// until waits for what the other goroutines bring about.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// wait waits until an End that is armed may go on. Alone it is the only user of the End
// that waits, and hears of everything by the doorbell; of two the other one may have read it.
func wait(t *testing.T, e *segment.End, rx, alone bool) {
	t.Helper()
	armed := e.ArmTX
	if rx {
		armed = e.ArmRX
	}
	if armed() {
		return
	}
	fds := []unix.PollFd{{Events: unix.POLLIN}}
	limit := hang
	if !alone {
		limit = time.Millisecond
	}
	raw, err := e.Bell().SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			fds[0].Fd = int32(fd)
			for n, perr := 0, error(unix.EINTR); errors.Is(perr, unix.EINTR); {
				if n, perr = unix.Poll(fds, int(limit/time.Millisecond)); n == 0 && alone {
					t.Error("the doorbell does not ring")
				}
			}
		})
	}
	if err != nil {
		t.Errorf("waiting for the doorbell: %v", err)
	}
	e.Awake()
}

// send sends all of p.
func send(t *testing.T, e *segment.End, p []byte, alone bool) error {
	t.Helper()
	for len(p) > 0 {
		n, err := e.Send(p)
		p = p[n:]
		if errors.Is(err, segment.ErrAgain) {
			wait(t, e, false, alone)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// receive receives n bytes.
func receive(t *testing.T, e *segment.End, n int, alone bool) ([]byte, error) {
	t.Helper()
	p := make([]byte, n)
	for got := 0; got < n; {
		k, err := e.Recv(p[got:])
		got += k
		if errors.Is(err, segment.ErrAgain) {
			wait(t, e, true, alone)
		} else if err != nil {
			return p[:got], err
		}
	}
	return p, nil
}

// end receives what says that a direction has ended.
func end(t *testing.T, e *segment.End, alone bool) error {
	t.Helper()
	var p [1]byte
	for {
		n, err := e.Recv(p[:])
		if n > 0 {
			t.Fatal("a byte that nobody has sent")
		}
		if !errors.Is(err, segment.ErrAgain) {
			return err
		}
		wait(t, e, true, alone)
	}
}

// pair is two programs on two hosts with both directions in the segments.
func pair(t *testing.T, size segment.Config, change func(*Config)) (hosts []*host, client, server *segment.End) {
	t.Helper()
	hosts = newHosts(t, 2, change)
	client = hosts[0].call(t, hosts[1], size)
	server = hosts[1].answer(t)
	until(t, "attached", client.Attached)
	for _, ends := range [][2]*segment.End{{client, server}, {server, client}} {
		promotes(t, ends[0], 17)
		until(t, "promoted", func() bool {
			n, ok := ends[1].PromotedAt()
			if ok && n != 17 {
				t.Fatal(n)
			}
			return ok
		})
	}
	return hosts, client, server
}

// promotes has an end promote its direction, after n bytes on the shadow, as soon as it may.
func promotes(t *testing.T, e *segment.End, n uint64) {
	t.Helper()
	until(t, "both ends attached", e.Attached)
	if err := e.Promote(n); err != nil {
		t.Fatal(err)
	}
}

func (o Offer) close(t *testing.T) {
	t.Helper()
	for _, fd := range []int{o.Segment, o.Bell} {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
}

// answerWith is answer, but the program does something else than to attach.
func (h *host) answerWith(t *testing.T, f func(*segment.End)) *segment.End {
	t.Helper()
	o := <-h.offers
	seg, err := segment.Map(o.Segment)
	_ = unix.Close(o.Segment)
	if err != nil {
		t.Fatal(err)
	}
	e, err := segment.NewEnd(seg, segment.Server, o.Bell, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(false); seg.Retire() })
	f(e)
	return e
}

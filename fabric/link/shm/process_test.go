package shm_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/shm"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	ishm "exnet/internal/shm"
)

// peerEnv makes the test binary the other process of a test: its value is the name
// of a role. Descriptor 3 is the socket.
const peerEnv = "EXNET_SHM_TEST_PEER"

// rig is one end of a link between two processes, with both units open.
type rig struct {
	nic  *nic.NIC
	link *shm.Link
	velo *velo.Endpoint
	rma  *rma.Endpoint
}

func newRig(n *nic.NIC, conn *net.UnixConn, cfg shm.Config) (r rig, err error) {
	r.nic = n
	if r.velo, err = n.OpenVELO(vpid, velo.Config{}); err != nil {
		return r, err
	}
	if r.rma, err = n.OpenRMA(vpid, rma.Config{}); err != nil {
		return r, err
	}
	r.link, err = shm.Connect(n, conn, cfg)
	return r, err
}

// process is the other process of a test.
type process struct {
	rig
	cmd   *exec.Cmd
	bytes *net.UnixConn // the other end of its descriptor 4
	out   *bufio.Reader // what it prints
}

// driven before a role says that drivers serve the link on both sides.
const driven = "driven/"

// helloTime is for a program with the race detector to begin on a busy machine.
const helloTime = time.Minute

// spawn starts a process with a role, and joins NIC 0 of this one with its NIC 1.
func spawn(tb testing.TB, role string) *process {
	tb.Helper()
	a, b := fabrictest.Sockets(tb, unix.SOCK_SEQPACKET)
	f, err := b.File()
	if err != nil {
		tb.Fatal(err)
	}
	b.Close()
	c, d := fabrictest.Sockets(tb, unix.SOCK_STREAM)
	g, err := d.File()
	if err != nil {
		tb.Fatal(err)
	}
	d.Close()
	p := &process{cmd: exec.Command("/proc/self/exe", "-test.run=^$"), bytes: c}
	p.cmd.Env = append(os.Environ(), peerEnv+"="+role)
	p.cmd.ExtraFiles = []*os.File{f, g}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	f.Close()
	g.Close()
	cfg := shm.Config{HelloTimeout: helloTime}
	if strings.HasPrefix(role, driven) {
		cfg.Driver = fabrictest.NewDriver(tb)
	}
	if p.rig, err = newRig(fabrictest.NewNIC(tb, 0), a, cfg); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.bytes.Close()
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
		<-p.link.Done()
	})
	return p
}

// line reads a line of the other process, and scans it as fmt.Sscan does.
func (p *process) line(tb testing.TB, to ...any) {
	tb.Helper()
	s, err := p.out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(s, to...)
	}
	if err != nil {
		tb.Fatalf("other process: %q, %v", s, err)
	}
}

// peerMain is the other process.
func peerMain(role string) int {
	f := os.NewFile(3, "socket")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	n, err := nic.New(nic.Config{Node: 1})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cfg := shm.Config{HelloTimeout: helloTime}
	role, ok := strings.CutPrefix(role, driven)
	if ok {
		if cfg.Driver, err = fabrictest.StartDriver(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	r, err := newRig(n, c.(*net.UnixConn), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	name, arg, _ := strings.Cut(role, ":")
	if err := roles[name](r, arg); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		return 1
	}
	return 0
}

func toPeer(n fabric.NodeID) velo.Descriptor { return velo.Descriptor{Dst: n, VPID: vpid} }

// roles are what the other process can do. Most go on until the link is down.
var roles = map[string]func(r rig, arg string) error{
	"echo":  echo,
	"serve": serve,
	"sleep": func(r rig, _ string) error { <-r.link.Done(); return nil },
	"count": count,
	"flood": flood,
	"line":  line,
	"awake": wakeAndEcho,
	"bytes": echoBytes,
}

// echo polls, and sends every message back.
func echo(r rig, _ string) error {
	for {
		_, p, ok := r.velo.Peek()
		if !ok {
			select {
			case <-r.link.Done():
				return nil
			default:
				continue
			}
		}
		if err := r.velo.Send(toPeer(0), p); err != nil {
			return err
		}
		r.velo.Advance()
	}
}

// sleeper reads a mailbox by interrupt.
type sleeper struct {
	rig
	irq chan struct{}
}

func newSleeper(r rig) *sleeper {
	s := &sleeper{r, make(chan struct{}, 1)}
	r.velo.OnInterrupt(func() {
		select {
		case s.irq <- struct{}{}:
		default:
		}
	})
	return s
}

// next sleeps until there is a message; false if the link is down.
func (s *sleeper) next() ([]byte, bool) {
	for {
		if _, p, ok := s.velo.Peek(); ok {
			return p, true
		}
		if s.velo.EnableInterrupt() {
			continue
		}
		select {
		case <-s.irq:
		case <-s.link.Done():
			return nil, false
		}
	}
}

// wakeAndEcho sleeps, and sends every message back.
func wakeAndEcho(r rig, _ string) error {
	s := newSleeper(r)
	for {
		p, ok := s.next()
		if !ok {
			return nil
		}
		if err := r.velo.Send(toPeer(0), p); err != nil {
			return err
		}
		r.velo.Advance()
	}
}

// echoBytes is the control of that: it echoes bytes on a socket of its own,
// descriptor 4.
func echoBytes(_ rig, _ string) error {
	f := os.NewFile(4, "bytes")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return err
	}
	for buf := make([]byte, 1); ; {
		if _, err := c.Read(buf); err != nil {
			return nil // the other side is done
		}
		if _, err := c.Write(buf); err != nil {
			return nil
		}
	}
}

// line is the control of the ping-pong: one word each way, in a segment of its own
// for each side. arg is the file of the other side's segment.
func line(r rig, arg string) error {
	near, err := ishm.Create("line", 4096)
	if err != nil {
		return err
	}
	f, err := os.Open(arg)
	if err != nil {
		return err
	}
	defer f.Close()
	far, err := ishm.Map(int(f.Fd()), 4096)
	if err != nil {
		return err
	}
	fmt.Printf("/proc/%d/fd/%d\n", os.Getpid(), near.Fd())
	there, back := &far.Memory().Words(0, 1)[0], &ishm.Words(near.Bytes(), 0, 1)[0]
	defer runtime.KeepAlive(near)
	defer runtime.KeepAlive(far)
	for n := uint64(1); ; n++ {
		for spin := 0; there.Load() != n; spin++ {
			if spin%(1<<20) == 0 {
				select {
				case <-r.link.Done():
					return nil
				default:
				}
			}
		}
		back.Store(n)
	}
}

// pattern fills b with something that depends on the place and on seed.
func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*31 + i>>8 + seed)
	}
}

// serve lends a region for reading and one for writing, both of arg bytes, and
// polls so that it serves at once.
func serve(r rig, arg string) error {
	size, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	for _, a := range []atu.Access{atu.Read, atu.Write} {
		mem, err := r.nic.ATU().Alloc(size)
		if err != nil {
			return err
		}
		pattern(mem, 1)
		region, err := r.nic.ATU().Register(vpid, mem, a|atu.Read)
		if err != nil {
			return err
		}
		nla, err := region.Lend(0)
		if err != nil {
			return err
		}
		fmt.Println(uint64(nla))
	}
	for {
		if _, ok := r.rma.Next(); !ok {
			select {
			case <-r.link.Done():
				return nil
			default:
			}
		}
	}
}

// count reads numbered messages by interrupt, and prints how many came in order.
func count(r rig, arg string) error {
	total, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	s := newSleeper(r)
	for n := uint64(0); n < uint64(total); n++ {
		p, ok := s.next()
		if !ok {
			return r.link.Err()
		}
		if got := binary.LittleEndian.Uint64(p); got != n {
			return fmt.Errorf("message %d, want %d", got, n)
		}
		r.velo.Advance()
	}
	fmt.Println(total)
	<-r.link.Done()
	return nil
}

// flood sends as much as it can, and GETs.
func flood(r rig, _ string) error {
	msg := make([]byte, 100)
	for {
		if err := r.velo.Send(toPeer(0), msg); err != nil {
			select {
			case <-r.link.Done():
				return nil
			case <-time.After(time.Microsecond):
			}
		}
	}
}

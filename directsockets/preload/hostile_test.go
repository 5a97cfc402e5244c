package preload

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
	"exnet/internal/cbuild"
)

// Where a segment with 16 slots has what a hostile client can write (SPEC.md, 2).
const (
	segHeader  = 0
	segControl = 512 // of side 0, then of side 1, 512 bytes each
	segState   = 136 // in a control block
	segQueue   = 4096
	segSlots   = 16
)

// hostileClient is a client that makes a segment as SPEC.md says, until the server has
// attached.
func hostileClient(t *testing.T, c *client.Client, to netip.AddrPort) (conn *net.TCPConn, seg *segment.Segment, bell int) {
	t.Helper()
	conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(3 * time.Minute))
	info := segment.Info{Nonce: segment.NewNonce(), Client: conn.LocalAddr().(*net.TCPAddr).AddrPort(), Server: to}
	if seg, err = segment.Create(info, segment.Config{Slots: segSlots, Ring: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Offer(client.Socket{Conn: raw}, wire.Nonce(info.Nonce), seg.Fd(), bells[1], nil); err != nil {
		t.Fatal(err)
	}
	unix.Close(bells[1])
	state := seg.Exposed()[segControl+512+segState:]
	written := uint64(0)
	for end := time.Now().Add(3 * time.Minute); binary.LittleEndian.Uint32(state) != uint32(segment.StateAttached); {
		var b [1]byte
		if _, err := conn.Write(b[:]); err != nil {
			t.Fatal(err)
		}
		written++
		if binary.LittleEndian.Uint32(state) == uint32(segment.StateAttached) {
			break // the answer may come through the segment
		}
		conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = conn.Read(b[:])
		if time.Now().After(end) {
			t.Fatal("the server does not attach")
		}
	}
	// PROMOTE: from now on the program reads the queue.
	slot := seg.Exposed()[segQueue:]
	binary.LittleEndian.PutUint64(slot[8:], written)
	binary.LittleEndian.PutUint64(slot, statusOf(1, segment.TagPromote, 8))
	_ = unix.Sendto(bells[0], []byte{0}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	return conn, seg, bells[0]
}

// statusOf is the status word of a message.
func statusOf(lap int, tag segment.Tag, length int) uint64 {
	return uint64(lap) | uint64(tag)<<32 | uint64(length)<<40
}

// scribbleAll writes what may pass for true, and noise, wherever the client can.
func scribbleAll(mem []byte, rnd *rand.Rand, bell int) {
	n := rnd.Uint64() >> rnd.IntN(64)
	switch rnd.IntN(6) {
	case 0: // a word of a control block: mostly its own
		side := 0
		if rnd.IntN(4) == 0 {
			side = 512
		}
		binary.LittleEndian.PutUint64(mem[segControl+side+8*rnd.IntN(64):], n)
	case 1, 2: // a message with a lap that may be right
		slot := mem[segQueue+128*rnd.IntN(segSlots):]
		lap, tag, length := 1+rnd.IntN(2), segment.TagRMAInfo, 28
		if rnd.IntN(3) == 0 {
			tag, length = segment.TagVELO, 1+rnd.IntN(120)
		} else if rnd.IntN(10) == 0 {
			tag, length = segment.Tag(rnd.IntN(10)), rnd.IntN(256)
		}
		size := rnd.IntN(70000)
		place := uint64(rnd.IntN(70000))
		if rnd.IntN(2) == 0 {
			place = n
		}
		binary.LittleEndian.PutUint64(slot[16:], place)
		binary.LittleEndian.PutUint64(slot[24:], uint64(size+rnd.IntN(2)*rnd.IntN(70000)))
		binary.LittleEndian.PutUint32(slot[12:], uint32(size))
		if slot[8] = 1; rnd.IntN(10) == 0 {
			slot[8] = byte(rnd.IntN(5))
		}
		binary.LittleEndian.PutUint64(slot, statusOf(lap, tag, length))
	case 3: // a small number where a count is
		binary.LittleEndian.PutUint64(mem[segControl+8*rnd.IntN(2):], uint64(rnd.IntN(40)))
	case 4: // the header, which nobody reads any more, and both queues
		mem[segHeader+rnd.IntN(segQueue+2*segSlots*128)] = byte(n)
	case 5:
		_ = unix.Sendto(bell, make([]byte, 1+rnd.IntN(100)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
}

// cServer is an unmodified program (ctest/server.c) under the library: where it listens, and a
// client of its broker. It ends when stdin is closed.
type cServer struct {
	cmd   *exec.Cmd
	stdin io.Closer
	to    netip.AddrPort
	*client.Client
}

// buildCServer returns the paths of the program and the library.
func buildCServer(t *testing.T) (program, library string) {
	t.Helper()
	needCompiler(t)
	program = filepath.Join(t.TempDir(), "server")
	compileC(t, program, cbuild.Command{Flags: warned, Files: []string{"ctest/server.c"}})
	return program, testLibrary(t)
}

func startCServer(t *testing.T, program, library string, more ...string) *cServer {
	t.Helper()
	env := startBroker(t)
	path := strings.TrimPrefix(env[1], "EXNET_BROKER=")
	cmd := exec.Command(program)
	cmd.Env = append(append(append(os.Environ(), env...), "LD_PRELOAD="+library), more...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended if all went well
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	client, err := client.Dial(client.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	for end := time.Now().Add(3 * time.Minute); !client.Listener(uint16(port)); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the listener is not shown")
		}
	}
	return &cServer{cmd, stdin, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port)), client}
}

// TestCServerCapsRing: an unmodified server refuses segments larger than it allows.
func TestCServerCapsRing(t *testing.T) {
	program, library := buildCServer(t)
	for _, test := range []struct {
		name   string
		config directsockets.Config
		env    []string
		direct bool
	}{
		{"ring", directsockets.Config{Ring: 1 << 30}, nil, false},
		{"slots", directsockets.Config{Slots: 4096}, []string{"EXNET_DS_MAX_SLOTS=2048"}, false},
		{"as much as allowed", directsockets.Config{Ring: 4 << 20, Slots: 4096}, nil, true},
		{"less allowed", directsockets.Config{}, []string{"EXNET_DS_MAX_RING=65536"}, false},
		{"more allowed", directsockets.Config{Ring: 8 << 20, Slots: 2048}, []string{"EXNET_DS_MAX_RING=8388608", "EXNET_DS_MAX_SLOTS=2048"}, true},
		{"its own are as large", directsockets.Config{Ring: 8 << 20, Slots: 2048}, []string{"EXNET_DS_RING=8388608", "EXNET_DS_SLOTS=2048"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := startCServer(t, program, library, test.env...)
			test.config.Broker, test.config.Eager = server.Client, true
			d := directsockets.Dialer{Config: test.config}
			c, err := d.DialContext(t.Context(), "tcp", server.to.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			conn := c.(*directsockets.Conn)
			for end := time.Now().Add(3 * time.Minute); ; {
				var b [1]byte
				if _, err := c.Write(b[:]); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(c, b[:]); err != nil {
					t.Fatal(err)
				}
				s := conn.Stats()
				if test.direct && s.Direct() || !test.direct && s.Reason == directsockets.ReasonRefused {
					break
				}
				if s.Direct() || time.Now().After(end) {
					t.Fatal(s)
				}
			}
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", server.cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(text), "exnet-ds "); got != test.direct {
				t.Errorf("the server has a segment: %v", got)
			}
		})
	}
}

// TestHostileClient has clients write at random over the segments that they share with
// an unmodified program: that lives on, its other connections do, too, and nothing is
// left of those of the hostile ones.
func TestHostileClient(t *testing.T) {
	program, library := buildCServer(t)
	server := startCServer(t, program, library)
	cmd, stdin, client, to := server.cmd, server.stdin, server.Client, server.to
	d := directsockets.Dialer{Config: directsockets.Config{Broker: client, Eager: true}}
	c, err := d.DialContext(context.Background(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	good := c.(*directsockets.Conn)
	defer good.Close()
	good.SetDeadline(time.Now().Add(5 * time.Minute))
	fine := func(what string) {
		t.Helper()
		text := []byte(fmt.Sprintf("fine %d", time.Now().UnixNano()))
		back := make([]byte, len(text))
		if _, err := good.Write(text); err != nil {
			t.Fatal(what, err)
		}
		if _, err := io.ReadFull(good, back); err != nil || string(back) != string(text) {
			t.Fatalf("%s: %q, %v", what, back, err)
		}
	}
	for end := time.Now().Add(3 * time.Minute); !good.Stats().Direct(); {
		if fine("before"); time.Now().After(end) {
			t.Fatal("not direct", good.Stats())
		}
	}
	descriptors := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before, rounds := descriptors(), 20
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		rnd := rand.New(rand.NewPCG(7, uint64(round)))
		conn, seg, bell := hostileClient(t, client, to)
		mem := seg.Exposed()
		conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
		for i := range 3000 {
			scribbleAll(mem, rnd, bell)
			if rnd.IntN(300) == 0 {
				_, _ = conn.Write(make([]byte, 1+rnd.IntN(2000)))
			}
			if i%30 == 0 {
				time.Sleep(100 * time.Microsecond) // for the program to look
			}
			if i%1000 == 500 {
				fine(fmt.Sprint("round ", round))
			}
		}
		_ = conn.SetLinger(0) // what is in its way is lost
		conn.Close()
		unix.Close(bell)
		seg.CloseFd()
		seg.Retire()
		fine(fmt.Sprint("after round ", round))
	}
	if !good.Stats().Direct() {
		t.Error(good.Stats())
	}
	for end := time.Now().Add(3 * time.Minute); descriptors() > before+2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("the program has %d descriptors, %d before", descriptors(), before)
			break
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error("the program has died:", err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

package preload

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/internal/cbuild"
	"exnet/test/testlab"
)

// bursts of so many datagrams, and how many of them.
const bursts, burstLen = 60, 32

// burstEnd is a running ctest/burst.c under the library.
type burstEnd struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startBurst(t *testing.T, program string, env []string, args ...string) *burstEnd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append(args, fmt.Sprint(burstLen))...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
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
	return &burstEnd{cmd, in, bufio.NewScanner(out)}
}

// line is the next one that it prints.
func (b *burstEnd) line(t *testing.T) string {
	t.Helper()
	if !b.out.Scan() {
		t.Fatalf("it has ended: %v", b.out.Err())
	}
	return b.out.Text()
}

// asleep waits until it sleeps in a call of the kernel.
func (b *burstEnd) asleep(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") S ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it does not sleep: %s", stat)
		}
	}
}

// counts is what it prints at its end.
func (b *burstEnd) counts(t *testing.T) (memory, kernel int) {
	t.Helper()
	if text := b.line(t); !scan(text, &memory, &kernel) {
		t.Fatalf("it has printed %q", text)
	}
	return memory, kernel
}

func scan(text string, v ...any) bool {
	n, err := fmt.Sscan(text, v...)
	return err == nil && n == len(v)
}

// TestUDPBursts sends bursts from Go and C to receivers in Go and C that sleep between them: all
// datagrams come, in order, and most of them through memory.
func TestUDPBursts(t *testing.T) {
	needCompiler(t)
	program := filepath.Join(t.TempDir(), "burst")
	compileC(t, program, cbuild.Command{Flags: warned, Files: []string{"ctest/burst.c"}, Libs: []string{"-ldl"}})
	env := append(startBroker(t), "LD_PRELOAD="+testLibrary(t))
	var cfg directsockets.Config
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "EXNET_BROKER="); ok {
			broker, err := client.Dial(client.Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			defer broker.Close()
			cfg.Broker = broker
		}
	}
	listen := func(t *testing.T) *directsockets.UDPConn {
		lc := directsockets.ListenConfig{Config: cfg}
		c, err := lc.ListenPacket(context.Background(), "udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*directsockets.UDPConn)
	}
	check := func(t *testing.T, memory, kernel int) {
		t.Helper()
		t.Logf("%d through memory, %d by the kernel", memory, kernel)
		if memory < bursts*burstLen/2 { // all but one of each burst, and the first bursts
			t.Errorf("%d through memory, %d by the kernel", memory, kernel)
		}
	}
	// toC has send send a burst to a receiver in C that is stopped in its sleep, so that it does
	// not wake in the middle.
	toC := func(t *testing.T, to *burstEnd, send func()) {
		for range bursts {
			to.asleep(t)
			if err := to.cmd.Process.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			send()
			if err := to.cmd.Process.Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if text := to.line(t); text != "all" {
				t.Fatal(text)
			}
		}
	}
	end := func(t *testing.T, port int) { // by one that has sent nothing before
		t.Helper()
		c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(nil); err != nil {
			t.Fatal(err)
		}
	}
	burst := func(t *testing.T, from *burstEnd) {
		if _, err := from.in.Write([]byte{'.'}); err != nil {
			t.Error(err)
		}
	}
	t.Run("C to C", func(t *testing.T) {
		to := startBurst(t, program, env, "recv")
		var port int
		if !scan(to.line(t), &port) {
			t.Fatal("no port")
		}
		from := startBurst(t, program, env, "send", fmt.Sprint(port))
		toC(t, to, func() {
			burst(t, from)
			from.asleep(t) // reading its input: perhaps before the burst, and then the receiver is awake
		})
		end(t, port)
		memory, kernel := to.counts(t)
		check(t, memory, kernel)
	})
	t.Run("Go to C", func(t *testing.T) {
		to := startBurst(t, program, env, "recv")
		var port int
		if !scan(to.line(t), &port) {
			t.Fatal("no port")
		}
		c, n, b := listen(t), uint32(0), make([]byte, 4)
		toC(t, to, func() {
			for range burstLen {
				binary.LittleEndian.PutUint32(b, n)
				n++
				if _, err := c.WriteTo(b, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err != nil {
					t.Fatal(err)
				}
			}
		})
		end(t, port)
		memory, kernel := to.counts(t)
		check(t, memory, kernel)
	})
	t.Run("C to Go", func(t *testing.T) {
		c := listen(t)
		from := startBurst(t, program, env, "send", fmt.Sprint(c.LocalAddr().(*net.UDPAddr).Port))
		b, n := make([]byte, 100), uint32(0)
		for range bursts {
			time.AfterFunc(3*time.Millisecond, func() { burst(t, from) }) // it sleeps by then, most times
			for range burstLen {
				if _, _, err := c.ReadFrom(b); err != nil || binary.LittleEndian.Uint32(b) != n {
					t.Fatalf("%d, %v: want %d", binary.LittleEndian.Uint32(b), err, n)
				}
				n++
			}
		}
		check(t, int(c.Stats().ReceivedDirect), int(c.Stats().ReceivedShadow))
	})
}

// TestUDPFirst has a program exchange four datagrams, between sockets of its own. In the mode for
// tests of programs each goes through memory, in the default none does.
func TestUDPFirst(t *testing.T) {
	needCompiler(t)
	program := filepath.Join(t.TempDir(), "first")
	compileC(t, program, cbuild.Command{Flags: warned, Files: []string{"testdata/first.c"}, Libs: []string{"-ldl", "-lpthread"}})
	env := append(os.Environ(), append(startBroker(t), "LD_PRELOAD="+testLibrary(t))...)
	for _, mode := range []struct {
		name, counts string
		env          []string
	}{
		{"default", "0 0 0 0 ", nil},
		{"eager", "4 0 4 0 ", []string{"EXNET_DS_SENDS=0", "EXNET_DS_WAIT=1000"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program)
			cmd.Env = append(env, mode.env...)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != mode.counts {
				t.Errorf("%q (%v), want %q", out, err, mode.counts)
			}
		})
	}
}

// TestUDPOfferAgain has a receiver give back what it was granted, as one does that ends before it
// has attached: the sender in C, which receives nothing, offers another flow, however often that
// was.
func TestUDPOfferAgain(t *testing.T) {
	needCompiler(t)
	program := filepath.Join(t.TempDir(), "burst")
	compileC(t, program, cbuild.Command{Flags: warned, Files: []string{"ctest/burst.c"}, Libs: []string{"-ldl"}})
	b := testlab.StartBroker(t)
	c, err := client.Dial(client.Config{Path: b.Path()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r := testlab.NewClaimer(t, c)
	env := []string{"EXNET_BROKER=" + b.Path(), "EXNET_LOOPBACK=1", "LD_PRELOAD=" + testLibrary(t)}
	from := startBurst(t, program, env, "send", fmt.Sprint(r.Addr.Port))
	for range 2 {
		g := r.Granted(t, func() {
			if _, err := from.in.Write([]byte{'.'}); err != nil {
				t.Fatal(err)
			}
		})
		_ = unix.Close(g.Segment)
		_ = unix.Close(g.Bell)
	}
}

package directsockets_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/internal/netns"
)

// childEnv has the job of a process that is this test binary again.
const childEnv = "EXNET_DS_CHILD"

// childJob is what a child is told.
type childJob struct {
	Broker string // path of the broker's socket; "": none, plain net
	Eager  bool
	// Netstack: a node of its own, see netstackNode.
	Netstack bool
}

// childOrder is one line for a child: what to do with a new connection to Dial, or
// with one that is accepted.
type childOrder struct {
	Do   string // see doOrder
	Dial string // address
	N    int64
}

// child is a process that does orders.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	mu  sync.Mutex
}

// startChild starts a child, in a namespace unless ns is nil.
func startChild(t testing.TB, job childJob, ns *netns.NS) *child {
	t.Helper()
	return start(t, job, ns, nil)
}

// startChildWith starts a child with descriptors from 3 on, which are borrowed.
func startChildWith(t testing.TB, job childJob, files []*os.File) *child {
	t.Helper()
	return start(t, job, nil, files)
}

func start(t testing.TB, job childJob, ns *netns.NS, files []*os.File) *child {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = files
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if ns != nil {
		err = ns.Start(cmd)
	} else {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		timer := time.AfterFunc(testWait, func() { cmd.Process.Kill() })
		defer timer.Stop()
		cmd.Wait() // some tests kill it
	})
	c.answer(t) // it has found the broker
	return c
}

// tell gives an order and returns the answer.
func (c *child) tell(t testing.TB, o childOrder) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c.in, "%s\n", text); err != nil {
		t.Fatal(err)
	}
	return c.answer(t)
}

func (c *child) answer(t testing.TB) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatal("the child has ended")
	}
	return c.out.Text()
}

func runChild(text string) int {
	var job childJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dial := net.Dial
	listen := net.Listen
	if job.Netstack {
		ns, client, _, err := netstackNode(2, 3, 4)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		d := directsockets.Dialer{Config: directsockets.Config{Broker: client, Eager: job.Eager}, Shadow: netstackDial(ns)}
		dial = d.Dial
	}
	if job.Broker != "" {
		client, err := client.Dial(client.Config{Path: job.Broker})
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), testWait)
			defer cancel()
			err = client.Wait(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		cfg := directsockets.Config{Broker: client, Eager: job.Eager}
		d := directsockets.Dialer{Config: cfg}
		dial = d.Dial
		listen = func(network, address string) (net.Listener, error) {
			lc := directsockets.ListenConfig{Config: cfg}
			return lc.Listen(context.Background(), network, address)
		}
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var o childOrder
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := doOrder(o, dial, listen); err != nil {
			fmt.Fprintln(os.Stderr, "child:", o.Do, err)
			return 1
		}
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

// doOrder does what a child is told, and answers with a line.
func doOrder(o childOrder, dial func(network, address string) (net.Conn, error), listen func(network, address string) (net.Listener, error)) error {
	switch o.Do {
	case "relay": // dials twice, and relays between the two
		a, err := dial("tcp", o.Dial)
		if err != nil {
			return err
		}
		b, err := dial("tcp", o.Dial)
		if err != nil {
			return err
		}
		go relay(a, b)
		go relay(b, a)
	case "serve", "drain": // listens, and returns all that is sent on each connection, or not
		l, err := listen("tcp", o.Dial)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if o.Do == "serve" {
					go echo(c)
				} else {
					go func() {
						drain(c)
						c.Close()
					}()
				}
			}
		}()
		fmt.Println(l.Addr())
		return nil
	case "source": // dials, and sends N bytes of pattern; 0: without end
		c, err := dial("tcp", o.Dial)
		if err != nil {
			return err
		}
		go func() {
			writePattern(c, o.N)
			c.Close()
		}()
	case "sink": // dials, and reads to the end
		c, err := dial("tcp", o.Dial)
		if err != nil {
			return err
		}
		go func() {
			io.Copy(io.Discard, c)
			c.Close()
		}()
	case "hang": // dials, and neither reads nor writes more than what makes it direct
		c, err := dial("tcp", o.Dial)
		if err != nil {
			return err
		}
		go func() {
			var buf [1]byte
			for {
				if _, err := io.ReadFull(c, buf[:]); err != nil || buf[0] == 0 {
					select {}
				}
				c.Write(buf[:])
			}
		}()
	default:
		return fmt.Errorf("no such order")
	}
	fmt.Println("done")
	return nil
}

// relay copies from one connection to another, with half-close, as a proxy does.
func relay(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				from.Close()
				to.Close()
				return
			}
		}
		if err == io.EOF {
			to.(interface{ CloseWrite() error }).CloseWrite()
			return
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// drain reads to the end, in pieces of 64 KiB.
func drain(c net.Conn) (sum int64) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if sum += int64(n); err != nil {
			return sum
		}
	}
}

func echo(c net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, err := c.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	c.Close()
}

// patternAt is the byte at an offset of a test stream.
func patternAt(off int64) byte { return byte(off*7 + off>>8*13 + off>>16*29) }

func fillPattern(b []byte, off int64) {
	for i := range b {
		b[i] = patternAt(off + int64(i))
	}
}

// writePattern writes n bytes of pattern in pieces of changing size; 0: without end.
func writePattern(c io.Writer, n int64) error {
	buf := make([]byte, 100_000)
	size := 1
	for off := int64(0); n == 0 || off < n; {
		k := size
		if n > 0 {
			k = int(min(int64(k), n-off))
		}
		fillPattern(buf[:k], off)
		if _, err := c.Write(buf[:k]); err != nil {
			return err
		}
		off += int64(k)
		if size = size*3 + 1; size > len(buf) {
			size = 1
		}
	}
	return nil
}

// readPattern reads up to n bytes of pattern, 0: to the end, and checks them.
func readPattern(c io.Reader, n int64) (off int64, err error) {
	buf := make([]byte, 77_777)
	want := make([]byte, len(buf))
	for n == 0 || off < n {
		k := len(buf)
		if n > 0 {
			k = int(min(int64(k), n-off))
		}
		m, err := c.Read(buf[:k])
		fillPattern(want[:m], off)
		for i := range m {
			if buf[i] != want[i] {
				return off, fmt.Errorf("byte %d is %#x, not %#x", off+int64(i), buf[i], want[i])
			}
		}
		off += int64(m)
		if err == io.EOF && n == 0 {
			return off, nil
		}
		if err != nil {
			return off, fmt.Errorf("at byte %d: %w", off, err)
		}
	}
	return off, nil
}

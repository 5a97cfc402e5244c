package agent

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/preload"
	"exnet/internal/logger"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
)

// lab is two namespaces on a bridge in a third, which routes and translates, too, and an agent that
// sees their programs.
type lab struct {
	t            *testing.T
	router, a, b *netns.NS
	proc         string
	door         string        // "": the agent has none
	waits        bool          // a program begins when the agent can see its process
	every        time.Duration // 0: lookTime
	rules        Rules
	pin          string // see Config
	how          string // "": programs are in this user namespace; else how their container is made: see contain
	stop         context.CancelFunc
	ended        chan error
}

// newLab skips the test where there can be no agent. a and b have 172.30.0.2 and .3, and fd30::2
// and ::3.
func newLab(t *testing.T) *lab {
	t.Helper()
	netnstest.Require(t)
	l := &lab{t: t, router: netnstest.New(t), a: netnstest.New(t), b: netnstest.New(t), proc: t.TempDir()}
	l.build()
	l.start()
	return l
}

// build makes the bridge.
func (l *lab) build() {
	t := l.t
	t.Helper()
	for _, c := range []string{"ip link set lo up", "ip link add br0 type bridge", "ip addr add 172.30.0.1/24 dev br0",
		"ip -6 addr add fd30::1/64 dev br0 nodad", "ip link set br0 up"} {
		command(t, l.router, c)
	}
	netnstest.SetSysctl(t, l.router, "ipv4/ip_forward", "1")
	for i, n := range []*netns.NS{l.a, l.b} {
		l.attach(n, "br0", fmt.Sprint("v", i), fmt.Sprintf("172.30.0.%d/24", i+2), fmt.Sprintf("fd30::%d/64", i+2))
		command(t, n, "ip route add default via 172.30.0.1")
	}
}

// attach gives a namespace an interface eth0 on a bridge of the router's, with addresses.
func (l *lab) attach(n *netns.NS, bridge, name string, addrs ...string) {
	l.t.Helper()
	command(l.t, l.router, fmt.Sprintf("ip link add %s type veth peer name eth0 netns %s", name, n.Path()))
	command(l.t, l.router, fmt.Sprintf("ip link set %s master %s up", name, bridge))
	command(l.t, n, "ip link set lo up")
	for _, a := range addrs {
		nodad := ""
		if strings.Contains(a, ":") {
			nodad = " nodad"
		}
		command(l.t, n, "ip addr add "+a+" dev eth0"+nodad)
	}
	command(l.t, n, "ip link set eth0 up")
}

// start starts an agent, which the end of the test, or halt, ends.
func (l *lab) start() {
	l.t.Helper()
	ctx, stop := context.WithCancel(l.t.Context())
	l.stop, l.ended = stop, make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		l.ended <- (&agent{log: logger.Discard{}, proc: l.proc, doorPath: l.door, pin: l.pin, every: cmp.Or(l.every, lookTime), rules: l.rules}).serveNamespaces(ctx, func() { close(ready) })
	}()
	select {
	case err := <-l.ended:
		stop()
		if errors.Is(err, ErrUnsupported) {
			l.t.Skip(err)
		}
		l.t.Fatal(err)
	case <-ready:
	}
	l.t.Cleanup(l.halt)
}

func (l *lab) halt() {
	if l.stop == nil {
		return
	}
	l.stop()
	l.stop = nil
	if err := <-l.ended; err != nil {
		l.t.Error(err)
	}
}

// see has the agent see a process.
func (l *lab) see(pid int) {
	l.t.Helper()
	name := strconv.Itoa(pid)
	if err := os.Symlink(filepath.Join(procDir, name), filepath.Join(l.proc, name)); err != nil {
		l.t.Fatal(err)
	}
}

// nft runs nft(8) in a namespace, or skips the test without it.
func (l *lab) nft(n *netns.NS, rules ...string) {
	l.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		l.t.Skip("nft is missing (apt-get install nftables)")
	}
	for _, r := range rules {
		command(l.t, n, "nft "+r)
	}
}

// language says whose a program's sockets are: the C library's, or those of directsockets.
type language bool

const (
	inC  language = true
	inGo language = false
)

func (l language) String() string {
	if l == inC {
		return "C"
	}
	return "Go"
}

// chat is a program of the lab: testdata/chat.py, which says what it does, or the same in Go.
type chat struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// chat starts a program in a namespace. A server has begun to listen when it returns.
func (l *lab) chat(n *netns.NS, as language, role, addr string, port int) *chat {
	l.t.Helper()
	cmd := l.program(as, role, addr, port)
	if l.waits {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `read -r line && exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
	}
	c := l.run(n, cmd)
	l.see(cmd.Process.Pid)
	if l.waits {
		if _, err := fmt.Fprintln(c.in, "begin"); err != nil {
			l.t.Fatal(err)
		}
	}
	if role != "client" {
		c.expect("ready")
	}
	return c
}

// program is a command of the lab: a chat.
func (l *lab) program(as language, role, addr string, port int) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EXNET=1", roleEnv+"=chat-"+role+" "+net.JoinHostPort(addr, strconv.Itoa(port)))
	if as == inC {
		python := "/usr/bin/python3" // Debian's, which every user may run
		if _, err := os.Stat(python); err != nil {
			l.t.Skip("python3 is missing")
		}
		library, err := preload.Build(l.t.Context())
		if err != nil {
			l.t.Skip(err)
		}
		cmd = exec.Command(python, "testdata/chat.py", role, addr, strconv.Itoa(port))
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+library)
	}
	if l.how != "" {
		contained(l, as, cmd, l.how)
	}
	return cmd
}

// start1 starts this binary in another role, which says when it is ready.
func (l *lab) start1(n *netns.NS, role, arg string) *chat {
	l.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role+" "+arg)
	c := l.run(n, cmd)
	c.expect("ready")
	return c
}

// run starts a program, which the end of the test ends by its standard input.
func (l *lab) run(n *netns.NS, cmd *exec.Cmd) *chat {
	l.t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	c := &chat{t: l.t, cmd: cmd}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		l.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := n.Start(cmd); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		c.in.Close()
		_ = c.cmd.Wait() // a client that was killed, or a server whose standard input ended
	})
	return c
}

// expect reads a line.
func (c *chat) expect(want string) {
	c.t.Helper()
	if got := c.read(); got != want {
		c.t.Fatalf("a program says %q, want %q", got, want)
	}
}

func (c *chat) read() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatal("a program has ended: ", err)
	}
	return strings.TrimSpace(line)
}

// do has a client do something, and returns how it went: "ok", "timeout" or "end" and why.
func (c *chat) do(format string, args ...any) string {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
	return c.read()
}

// connections are those of the programs in a namespace, as its broker shows them.
func (l *lab) connections(n *netns.NS) []connstats.Connection {
	l.t.Helper()
	inode := n.Inode()
	all, err := control.Brokers()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, s := range all {
		if s.Broker == filepath.Join(client.SystemDir, strconv.FormatUint(inode, 10)+client.SocketSuffix) {
			return s.Connections
		}
	}
	return nil
}

// last is the one that was made last; nil: there is none.
func (l *lab) last(n *netns.NS) *connstats.Connection {
	l.t.Helper()
	if all := l.connections(n); len(all) > 0 {
		return &all[len(all)-1]
	}
	return nil
}

// becomesDirect has a client open connections until one is direct both ways.
func (l *lab) becomesDirect(n *netns.NS, c *chat) {
	l.t.Helper()
	for end := time.Now().Add(timeLimit); time.Now().Before(end); {
		if got := c.do("open"); got != "ok" {
			l.t.Fatal("open: ", got)
		}
		for range 20 {
			if got := c.do("ask 20 60"); got != "ok" {
				l.t.Fatal("ask: ", got)
			}
			if x := l.last(n); x != nil && x.Mode == connstats.ModeDirect.String() && x.Sent.DirectBytes > 0 && x.Received.DirectBytes > 0 {
				return
			}
		}
	}
	l.t.Fatalf("no connection became direct: %s", l.state())
}

// state is what the brokers of the lab's programs know.
func (l *lab) state() string {
	var text strings.Builder
	for name, n := range map[string]*netns.NS{"router": l.router, "a": l.a, "b": l.b} {
		fmt.Fprintf(&text, "\n%s: %+v", name, l.connections(n))
	}
	return text.String()
}

// within waits until something is so.
func (l *lab) within(d time.Duration, what string, ok func() bool) {
	l.t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("not within %v: %s: %s", d, what, l.state())
		}
	}
}

// chatServe is chat.py's server.
func chatServe(addr string) error { return serveEcho(addr) }

// chatAsk is chat.py's client.
func chatAsk(addr string) error {
	var c net.Conn
	var due [][]byte
	var got []byte
	number := 0
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		err := func() error {
			if words[0] == "open" {
				if c != nil {
					c.Close()
				}
				due, got = nil, nil
				var err error
				c, err = directsockets.Dial("tcp", addr)
				return err
			}
			if words[0] == "wait" {
				seconds, _ := strconv.ParseFloat(words[1], 64)
				if err := c.SetDeadline(time.Now().Add(time.Duration(seconds * float64(time.Second)))); err != nil {
					return err
				}
				_, err := c.Read(make([]byte, 1))
				return err
			}
			n, _ := strconv.Atoi(words[1])
			seconds, _ := strconv.ParseFloat(words[2], 64)
			for range n {
				if err := c.SetDeadline(time.Now().Add(time.Duration(seconds * float64(time.Second)))); err != nil {
					return err
				}
				line := fmt.Appendf(nil, "%010d %s\n", number, strings.Repeat("x", 2000))
				number++
				if _, err := c.Write(line); err != nil {
					return err
				}
				for due = append(due, line); len(due) > 0; due = due[1:] {
					for len(got) < len(due[0]) {
						b := make([]byte, 1<<16)
						k, err := c.Read(b)
						if got = append(got, b[:k]...); err != nil {
							return err
						}
					}
					if string(got[:len(due[0])]) != string(due[0]) {
						panic("another line")
					}
					got = got[len(due[0]):]
				}
			}
			return nil
		}()
		switch {
		case err == nil:
			fmt.Println("ok")
		case errors.Is(err, os.ErrDeadlineExceeded):
			fmt.Println("timeout")
		default:
			fmt.Println("end", err)
		}
	}
	return commands.Err()
}

// agentRole is an agent that sees the processes in a folder, until its standard input ends.
func agentRole(proc string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return (&agent{log: logger.Discard{}, proc: proc, every: lookTime}).serveNamespaces(ctx, func() { fmt.Println("ready") })
}

// sentBytes is how many bytes a's interface has sent: a program's direct bytes are not among them.
func (l *lab) sentBytes() (n uint64) {
	l.t.Helper()
	if err := l.a.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/dev")
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "eth0:"); ok {
				n, err = strconv.ParseUint(strings.Fields(rest)[8], 10, 64)
			}
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	return n
}

package exngo

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// pipe is a program that says something, and lasts until its input ends.
type pipe struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
	err bytes.Buffer
}

func startPipe(t *testing.T, env []string, args ...string) *pipe {
	t.Helper()
	p := &pipe{cmd: exec.Command(args[0], args[1:]...)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), &p.err
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// line is the next line that it prints.
func (p *pipe) line(t *testing.T) string {
	t.Helper()
	hang := time.AfterFunc(testWait, func() { p.cmd.Process.Kill() })
	defer hang.Stop()
	text, err := p.out.ReadString('\n')
	if err != nil {
		t.Errorf("%v: %v: %s", p.cmd.Args, err, &p.err)
	}
	return strings.TrimSpace(text)
}

func (p *pipe) end(t *testing.T) {
	t.Helper()
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %v: %s", p.cmd.Args, err, &p.err)
	}
}

// requestCalls returns how many system calls a server makes and its clients, which make one request
// for each of conns connections.
func requestCalls(t *testing.T, program string, conns int, env ...string) (ends [2]map[string]int) {
	t.Helper()
	serverArgs, ofServer := testlab.Traced(t, program)
	server := startPipe(t, env, serverArgs...)
	clientArgs, ofClients := testlab.Traced(t, program, server.line(t), fmt.Sprint(conns), "1")
	clients := startPipe(t, env, clientArgs...)
	if line := clients.line(t); line != "done" {
		t.Errorf("the clients say %q", line)
	}
	clients.end(t)
	server.end(t)
	return [2]map[string]int{ofServer(), ofClients()}
}

// TestRequestCalls: a connection that carries one request stays on TCP, and costs no system call
// that the program does not make, built by the go command.
func TestRequestCalls(t *testing.T) {
	longtest.Skip(t)
	s := testlab.StartBroker(t)
	dir := copyTree(t, "many")
	const conns = 200
	plain := requestCalls(t, buildPlain(t, dir), conns)
	got := requestCalls(t, buildProgram(t, dir), conns, "EXNET_LOOPBACK=1", client.PathEnv+"="+s.Path())
	for i := range got {
		testlab.CompareCalls(t, plain[i], got[i], conns)
	}
}

// TestMany has readers of one connection, of some, and of more than the scheduler looks for wait
// for messages, while their programs idle now and then: whoever sleeps is woken. A wake-up that
// is lost is a request without an answer.
func TestMany(t *testing.T) {
	longtest.Skip(t)
	s := testlab.StartBroker(t)
	program := buildProgram(t, copyTree(t, "many"))
	for _, procs := range []int{1, 2, 4} {
		for _, conns := range []int{1, 8, 200} {
			t.Run(fmt.Sprintf("GOMAXPROCS=%d,%d", procs, conns), func(t *testing.T) {
				env := []string{
					"EXNET_LOOPBACK=1", client.PathEnv + "=" + s.Path(), fmt.Sprintf("GOMAXPROCS=%d", procs),
					"EXNET_DS_SENDS=0", fmt.Sprintf("EXNET_DS_WAIT=%d", testWait.Milliseconds()),
				}
				server := startPipe(t, env, program)
				defer server.end(t)
				address := server.line(t)
				clients := startPipe(t, env, program, address, fmt.Sprint(conns), fmt.Sprint(40000/(conns+100)))
				defer clients.end(t)
				if line := clients.line(t); line != "done" {
					t.Errorf("the clients say %q", line)
				}
				if c, s := directEnds(s); c != conns || s != conns {
					t.Errorf("direct ends: clients %d, servers %d; want %d of each", c, s, conns)
				}
			})
		}
	}
}

// TestKilled kills clients whose servers wait for messages, more than the scheduler looks for: the
// kernel says once that a peer has gone, and each server hears of it.
func TestKilled(t *testing.T) {
	s := testlab.StartBroker(t)
	program := buildProgram(t, copyTree(t, "many"))
	env := []string{
		"EXNET_LOOPBACK=1", client.PathEnv + "=" + s.Path(), "EXNET_DS_SENDS=0", fmt.Sprintf("EXNET_DS_WAIT=%d", testWait.Milliseconds()),
	}
	server := startPipe(t, env, program)
	defer server.end(t)
	address := server.line(t)
	for _, conns := range []int{1, 60, 200} {
		clients := startPipe(t, env, program, address, fmt.Sprint(conns), "50")
		if line := clients.line(t); line != "done" {
			t.Errorf("the clients say %q", line)
		}
		if c, s := directEnds(s); c != conns || s != conns {
			t.Errorf("direct ends: clients %d, servers %d; want %d of each", c, s, conns)
		}
		if err := clients.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = clients.cmd.Wait() // it was killed
		left := conns
		for end := time.Now().Add(testWait); left > 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			_, left = directEnds(s)
		}
		if left > 0 {
			t.Errorf("of %d connections whose clients were killed the server has %d", conns, left)
		}
	}
}

package agent

import (
	"bytes"
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
	"exnet/internal/leaktest"
	"exnet/internal/logger"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

// roleEnv makes this binary a program in a container: "server ADDRESS", or "client ADDRESS".
const roleEnv = "EXNET_AGENT_TEST"

// timeLimit is how long a program waits to be direct.
const timeLimit = 3 * time.Minute

func TestMain(m *testing.M) {
	if role, addr, ok := strings.Cut(os.Getenv(roleEnv), " "); ok {
		f := map[string]func(string) error{"server": serveEcho, "client": askEcho, "chat-server": chatServe, "chat-client": chatAsk, "chat-proxy": chatProxy, "contain": contain, "agent": agentRole, "many": manyAsk, "chat-fill": fillRole, "reserve": reserve}[role]
		if err := f(addr); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	leaktest.Main(m)
}

// serveEcho returns what comes, on each connection, until its standard input ends.
func serveEcho(addr string) error {
	ln, err := directsockets.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go echo(ln)
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, ln.Close())
}

// echo returns what comes, on each connection, until ln is closed.
func echo(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// askEcho makes connections until one is direct both ways, and checks each echo.
func askEcho(addr string) error {
	message := bytes.Repeat([]byte("0123456789abcdef"), 1<<10)
	for end := time.Now().Add(timeLimit); time.Now().Before(end); {
		c, err := directsockets.Dial("tcp", addr)
		if err != nil {
			return err
		}
		for range 200 {
			if _, err := c.Write(message); err != nil {
				return err
			}
			got := make([]byte, len(message))
			if _, err := io.ReadFull(c, got); err != nil {
				return err
			}
			if !bytes.Equal(got, message) {
				return errors.New("the echo differs")
			}
			if c.(*directsockets.Conn).Stats().Direct() {
				fmt.Println("direct")
				return c.Close()
			}
			time.Sleep(time.Millisecond)
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return errors.New("no connection became direct")
}

// program starts this binary in a namespace, and has the agent see it.
func program(t *testing.T, proc string, n *netns.NS, role, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EXNET=1", roleEnv+"="+role+" "+addr)
	cmd.Stderr = os.Stderr
	if role == "server" {
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error("server: ", err)
			}
		})
		if err := n.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if text := make([]byte, 6); true {
			if _, err := io.ReadFull(out, text); err != nil {
				t.Fatal("server: ", err)
			}
		}
	} else if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := os.Symlink(filepath.Join(procDir, pid), filepath.Join(proc, pid)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func command(t *testing.T, n *netns.NS, text string) {
	t.Helper()
	argv := strings.Fields(text)
	cmd := exec.Command(argv[0], argv[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Run(cmd); err != nil {
		t.Fatalf("%s: %v: %s", text, err, out.String())
	}
}

// Programs in two namespaces on a bridge are direct, by both families and through an address that
// is translated.
func TestRootAgent(t *testing.T) {
	netnstest.Require(t)
	router, a, b := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	for _, c := range []string{"ip link set lo up", "ip link add br0 type bridge", "ip addr add 172.30.0.1/24 dev br0", "ip link set br0 up"} {
		command(t, router, c)
	}
	netnstest.SetSysctl(t, router, "ipv4/ip_forward", "1")
	for i, n := range []*netns.NS{a, b} {
		command(t, router, fmt.Sprintf("ip link add v%d type veth peer name eth0 netns %s", i, n.Path()))
		command(t, router, fmt.Sprintf("ip link set v%d master br0 up", i))
		for _, c := range []string{"ip link set lo up", fmt.Sprintf("ip addr add 172.30.0.%d/24 dev eth0", i+2), fmt.Sprintf("ip -6 addr add fd30::%d/64 dev eth0 nodad", i+2),
			"ip link set eth0 up", "ip route add default via 172.30.0.1"} {
			command(t, n, c)
		}
	}
	dials := []string{"172.30.0.3:8080", "[fd30::3]:8080"}
	if _, err := exec.LookPath("nft"); err == nil {
		for _, c := range []string{"nft add table ip nat", "nft add chain ip nat pre { type nat hook prerouting priority -100 ; }",
			"nft add rule ip nat pre ip daddr 10.96.0.10 tcp dport 80 dnat to 172.30.0.3:8080"} {
			command(t, router, c)
		}
		dials = append(dials, "10.96.0.10:80")
	} else {
		t.Log("nft is missing: no address is translated")
	}
	proc := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- (&agent{log: logger.Discard{}, proc: proc, every: lookTime}).serveNamespaces(ctx, func() { close(ready) })
	}()
	select {
	case err := <-ended:
		stop()
		if errors.Is(err, ErrUnsupported) {
			t.Skip(err)
		}
		t.Fatal(err)
	case <-ready:
	}
	program(t, proc, b, "server", "[::]:8080")
	for _, dial := range dials {
		cmd := program(t, proc, a, "client", dial)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", dial, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

package directsockets_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/test/testlab"
)

// requestsEnv has the test binary make connections with one request: "net", or "ds" with the
// broker that EXNET_BROKER names.
const requestsEnv = "EXNET_DS_REQUESTS"

const requests = 300

// runRequests makes connections that carry one request each, both ends in this process.
func runRequests(how string) error {
	dial, listen := net.Dial, net.Listen
	if how == "ds" {
		dial, listen = directsockets.Dial, directsockets.Listen
	}
	ln, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		for range requests {
			c, err := ln.Accept()
			if err == nil {
				err = answer(c)
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range requests {
		c, err := dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		if _, err := c.Write(make([]byte, 64)); err != nil {
			return err
		}
		if _, err := io.ReadAll(c); err != nil {
			return err
		}
		if d, ok := c.(*directsockets.Conn); ok && d.Stats().Reason != directsockets.ReasonNotYet {
			return fmt.Errorf("the broker is not used: %v", d.Stats())
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return <-done
}

// answer echoes one request, and closes first, as a server of HTTP/1.0 does.
func answer(c net.Conn) error {
	defer c.Close()
	buf := make([]byte, 64)
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	_, err := c.Write(buf)
	return err
}

// TestRequestCalls: a connection that carries one request stays on TCP, and makes no system call
// that one of package net does not make, at either end. Calls that depend on who runs when (read,
// accept4, epoll_pwait, futex …) are left out.
func TestRequestCalls(t *testing.T) {
	broker := brokerPath(t, startBroker(t))
	var counts [2]map[string]int
	for i, how := range []string{"net", "ds"} {
		args, calls := testlab.Traced(t, os.Args[0])
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), requestsEnv+"="+how, client.PathEnv+"="+broker)
		if out, err := cmd.CombinedOutput(); err != nil {
			if strings.Contains(string(out), "Operation not permitted") {
				t.Skip("no right to trace")
			}
			t.Fatalf("%s: %v\n%s", how, err, out)
		}
		counts[i] = calls()
	}
	testlab.CompareCalls(t, counts[0], counts[1], requests)
	// An accepted connection has its keep-alive from the listener, without four calls.
	if net, ds := counts[0]["setsockopt"], counts[1]["setsockopt"]; ds > net-4*requests+requests/5 {
		t.Errorf("setsockopt: %d calls for %d connections, package net %d", ds, requests, net)
	}
}

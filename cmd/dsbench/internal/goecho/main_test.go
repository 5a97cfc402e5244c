package main

import (
	"bytes"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"
)

// freeAddress is one that was free a moment before.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// The server answers, and its clients tell what they have measured.
func TestAsk(t *testing.T) {
	line := regexp.MustCompile(`^[1-9][0-9]* requests/s, p50 [0-9.]+ us, p99 [0-9.]+ us, CPU [0-9.]+ us a request\n$`)
	address := freeAddress(t)
	go func() {
		if err := serveEcho(address); err != nil {
			t.Error(err)
		}
	}()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		}
	}
	var out bytes.Buffer
	c := client{address: address, conns: 3, size: 64, time: 20 * time.Millisecond}
	if err := c.runClient(&out); err != nil || !line.MatchString(out.String()) {
		t.Errorf("%v, %q", err, &out)
	}
}

func TestArguments(t *testing.T) {
	for _, args := range []string{"", "-c 0 x:1", "-t 0 x:1", "-size 0 x:1", "-size 1000000 x:1", "a b"} {
		if err := runCommand(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), "give an address") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

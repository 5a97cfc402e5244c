package tun_test

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
)

func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
}

func TestRootCurl(t *testing.T) {
	needProgram(t, "curl")
	netnstest.CheckFDs(t)
	p := newPair(t, 65535, false)
	var ln net.Listener
	if err := p.ns[1].Do(func() (err error) { ln, err = net.Listen("tcp", "[fd00:2::2]:80"); return }); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "over exn0\n")
	})}
	done := make(chan error)
	go func() { done <- server.Serve(ln) }()
	if got := output(t, p.ns[0], "curl", "-sS", "--max-time", "20", "http://[fd00:2::2]/"); got != "over exn0\n" {
		t.Errorf("curl printed %q", got)
	}
	server.Close()
	<-done
	if got := output(t, p.ns[0], "ip", "-s", "link", "show", "exn0"); !strings.Contains(got, "RX:") {
		t.Errorf("ip -s link printed %q", got)
	}
}

// The program that docs/results/performance.md compares exn0 with.
func TestRootBareRelay(t *testing.T) {
	needProgram(t, "gcc")
	needProgram(t, "ping")
	program := filepath.Join(t.TempDir(), "relay")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/relay.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program, "ping", "-c", "3", "-i", "0.2", "10.77.0.2").CombinedOutput()
	if err != nil || !strings.Contains(string(out), " 0% packet loss") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestRootIperf3(t *testing.T) {
	needProgram(t, "iperf3")
	netnstest.CheckFDs(t)
	p := newPair(t, 65535, false)
	server := exec.CommandContext(t.Context(), "iperf3", "-s", "-1", "--forceflush")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ns[1].Start(server); err != nil {
		t.Fatal(err)
	}
	timeout := time.AfterFunc(3*time.Minute, func() { _ = server.Process.Kill() })
	defer timeout.Stop()
	for buf, seen := make([]byte, 256), ""; !strings.Contains(seen, "listening"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("iperf3 -s printed %q, %v", seen, err)
		}
		seen += string(buf[:n])
	}
	client := output(t, p.ns[0], "iperf3", "-c", "10.2.0.2", "-n", "16M", "-P", "2")
	if !strings.Contains(client, "iperf Done") {
		t.Errorf("iperf3 -c printed %s", client)
	}
	_, _ = io.Copy(io.Discard, out)
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

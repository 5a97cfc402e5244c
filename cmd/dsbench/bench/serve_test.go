package bench

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/cmd/dsbench/internal/benchtest"
)

// TestServe measures to another process, as to another host.
func TestServe(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "serve", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), programEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve ended with %v", err)
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("%q, %v", line, err)
	}
	for _, words := range []string{"stream", "pingpong", "crr", "rate --direction in"} {
		status, stdout, stderr := runProgram(t.Context(), words+" --connect "+address+" --congestion "+benchtest.Congestion(t)+short)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		if rows := decodeRows(t, stdout); len(rows) != 1 || rows[0].Path != "tcp" || rows[0].Median <= 0 {
			t.Errorf("rows %+v", rows)
		}
	}
	status, _, stderr := runProgram(t.Context(), "serve --listen "+address)
	if status != 1 || !strings.Contains(stderr, "address already in use") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a second one: status %d, %q", status, stderr)
	}
}

func TestConnectToNobody(t *testing.T) {
	status, stdout, stderr := runProgram(t.Context(), "stream --connect 127.0.0.1:1"+short)
	if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "dsbench stream: path tcp: no dsbench serves at 127.0.0.1:1: start \"dsbench serve\" there (") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}

func TestServeUsage(t *testing.T) {
	status, stdout, _ := runProgram(t.Context(), "serve -h")
	if status != 0 || !strings.Contains(stdout, "(:7640)") {
		t.Errorf("%d, %q", status, stdout)
	}
	fits(t, stdout)
	if status, _, stderr := runProgram(t.Context(), "serve now"); status != 2 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%d, %q", status, stderr)
	}
}

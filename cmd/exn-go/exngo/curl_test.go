package exngo

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/directsockets/broker/client"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// TestCurl has curl under exn-run read from a Go server, by HTTP/1 and HTTP/2: what C and
// Go have of direct sockets fits, and exn-run's report tells of it.
func TestCurl(t *testing.T) {
	longtest.Skip(t)
	for _, name := range []string{"curl", "cc"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	tmp := t.TempDir()
	run := filepath.Join(tmp, "exn-run")
	if out, err := exec.Command("go", "build", "-o", run, "exnet/cmd/exn-run").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := testlab.StartBroker(t)
	env := append(os.Environ(), client.PathEnv+"="+s.Path())
	server := exec.Command(buildProgram(t, copyTree(t, "serve")))
	server.Env = append(env, "EXNET_LOOPBACK=1")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Kill()
		server.Wait() // it was killed
	}()
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + strings.TrimSpace(addr) + "/"
	for _, tt := range []struct{ flag, version string }{{"--http1.1", "1.1"}, {"--http2-prior-knowledge", "2"}} {
		// A transfer may be over before a busy machine has come to hand over the segment.
		text := []byte(nil)
		for try := 0; try < 50 && !isDirect(text); try++ {
			report := filepath.Join(tmp, "report")
			curl := exec.Command(run, "--loopback", "--report", report, "--", "curl", "-sS", tt.flag, "-o", os.DevNull, "-w", "%{http_version} %{size_download}", url)
			curl.Env = env
			if out, err := curl.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), tt.version+" 67108864") {
				t.Fatalf("curl %s: %v, %q", tt.flag, err, out)
			}
			text = readFile(t, report)
		}
		if !isDirect(text) {
			t.Errorf("curl %s: in none of 50 transfers was a byte direct; of the last: %s", tt.flag, text)
		}
	}
}

// isDirect says that a report of exn-run tells of a connection that was direct.
func isDirect(report []byte) bool {
	var r struct {
		Path     string `json:"path"`
		Received struct {
			Direct uint64 `json:"direct_bytes"`
		} `json:"received"`
	}
	return json.Unmarshal(report, &r) == nil && r.Path == "direct" && r.Received.Direct > 0
}

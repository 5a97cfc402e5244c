package lab

import (
	"context"
	"crypto/sha256"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/testlab"
)

// Programs of the host send each other a file, and what goes wrong with one is said.
func TestRootPrograms(t *testing.T) {
	end := End{NS: testlab.LoopbackNS(t), Addrs: map[Family]netip.Addr{V4: netip.MustParseAddr("127.0.0.1"), V6: netip.IPv6Loopback()}}
	path := Path{Name: "lo", A: end, B: end}
	for _, f := range Families() {
		names, err := Programs(t.Context(), path, f)
		if err != nil {
			t.Errorf("%v: %v", f, err)
		}
		for _, q := range pairs {
			if has := strings.Contains(strings.Join(names, ";"), q.name); has != q.hasPrograms() {
				t.Errorf("%v: %q, %s is here: %v", f, names, q.name, q.hasPrograms())
			}
		}
	}
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte("data\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := []string{"sh", "-c", "echo port 7"}
	for _, test := range []struct {
		server, client []string
		want           string
	}{
		{[]string{"sh", "-c", "echo no >&2; exit 1"}, nil, "did not start"},
		{begin, []string{"sh", "-c", "echo why >&2; exit 3"}, "exit status 3: why"},
		{begin, []string{"echo"}, "received data with SHA-256 sum"},
		{[]string{"sh", "-c", "echo port 7; echo late >&2; exit 4"}, []string{"sh", "-c", "cat " + file}, "exit status 4: late"},
		{begin, []string{"sh", "-c", "cat " + file}, ""},
	} {
		err := pair{server: test.server, client: test.client}.sendFile(t.Context(), path, V4, file, sha256.Sum256([]byte("data\n")))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q, %q: %v", test.server, test.client, err)
		}
	}
}

// TestProgramEndsWhole: a program that is cancelled takes what it has started with it, so that its
// output ends, too.
func TestProgramEndsWhole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd, _ := programOf(ctx, []string{"sh", "-c", "sleep 600 & echo begun; wait"})
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var begun [6]byte
	if _, err := io.ReadFull(out, begun[:]); err != nil {
		t.Fatal(err)
	}
	cancel()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not ended")
	}
}

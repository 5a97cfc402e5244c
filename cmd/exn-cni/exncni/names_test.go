package exncni_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"exnet/cmd/exn-cni/exncni"
)

// A runtime passes names that lead out of the directory of the records, that no file can have, or
// that a terminal obeys. ADD refuses each in one line; no command writes or removes anything; and
// DEL of what cannot be attached succeeds, or the runtime repeats it for ever.
func TestHostileNames(t *testing.T) {
	root := t.TempDir()
	records := filepath.Join(root, "records")
	for _, name := range []string{"keep.json", "keep/c1,eth0.json", "records/keep.json", "records/lab/keep.log"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (all []string) {
		_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			all = append(all, path)
			return err
		})
		return all
	}
	before := list()
	stdin := os.Stdin
	t.Cleanup(func() { os.Stdin = stdin })
	const good, name = 0, 1
	long := strings.Repeat("a", 300)
	for _, tt := range []struct {
		network, container, ifname string
		del                        int // its exit status
		want                       string
	}{
		{"../keep", "c1", "eth0", name, "network name"},
		{"..", "c1", "eth0", name, "network name"},
		{"a/b", "c1", "eth0", name, "network name"},
		{"", "c1", "eth0", name, "network name"},
		{"lab", "../../keep", "eth0", name, "containerID"},
		{"lab", "..", "eth0", name, "containerID"},
		{"lab", "a,b", "eth0", name, "containerID"},
		{"lab", "c1", "../keep", name, "interface name"},
		{"lab", "c1", "..", name, "interface name"},
		{"lab", "c1", long, name, "interface name"},
		{"lab", long, "eth0", good, "CNI_CONTAINERID has 300 characters: use up to 213"},
		{"lab", "c1", "eth\xff", good, "use printable characters"},
		{"lab", "c1", "\x1b[31m", good, "use printable characters"},
		{"lab", "c1", "a\nb", name, "interface name"},
		{"lab", "c1", "x,y", good, "network namespace"}, // a name like another
		{"lab", "c1", "--dir", good, "network namespace"},
	} {
		for _, command := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
			t.Setenv("CNI_COMMAND", command)
			t.Setenv("CNI_CONTAINERID", tt.container)
			t.Setenv("CNI_IFNAME", tt.ifname)
			t.Setenv("CNI_NETNS", filepath.Join(root, "none"))
			t.Setenv("CNI_PATH", root)
			netconf, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": tt.network, "type": "exn-cni", "records": records, "dir": filepath.Join(root, "fabric")})
			if err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			status := exncni.Run(nil, bytes.NewReader(netconf), &stdout, &stderr)
			what := fmt.Sprintf("%s %.20q %.20q %.20q: %d, %q, %q", command, tt.network, tt.container, tt.ifname, status, stdout.String(), stderr.String())
			if bytes.ContainsRune(stdout.Bytes(), 0x1b) || !utf8.Valid(stdout.Bytes()) || stderr.Len() > 0 {
				t.Error(what)
			}
			switch command {
			case "ADD":
				var answer struct{ Msg string }
				if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil || status != 1 || !strings.Contains(answer.Msg, tt.want) || strings.Contains(answer.Msg, "\n") {
					t.Errorf("%s, want %s", what, tt.want)
				}
			case "DEL":
				if status != tt.del {
					t.Errorf("%s, want %d", what, tt.del)
				}
			}
			if after := list(); !slices.Equal(after, before) {
				t.Fatalf("%s: %q, before %q", what, after, before)
			}
		}
	}
}

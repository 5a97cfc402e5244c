package exnsim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/cli"
)

// Every kind of mistake in a scenario, and in the files that it names, is a line of its own
// with its place.
func TestMistakesTable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("short.csv", "0,1\n")
	write("bad.csv", "a,b,c\n0,1,-5\n0,99999999999,5\n1,1,x\n")
	write("type.json", `[{"rank":0,"n_procs":2,"tx_bytes":[0,"x"]}]`)
	write("cut.json", "[\n{\"rank\":0,")
	write("ranks.json", `[{"rank":0,"n_procs":2,"tx_bytes":[0,1]}]`)
	write("node.graphml", `<graphml><graph><node id="a"/>`+"\n"+`<edge source="a" target="b"/></graph></graphml>`)
	write("cut.graphml", "<graphml><graph>")
	write("net.toml", "nodes = [1, 2]\nlinks = [\"1 3\"]\n")
	const job = "[[job]]\npattern = \"ring\"\nranks = 4\n"
	list := func(n int) string { // [1, 2, ... n]
		text := "["
		for i := range n {
			text += fmt.Sprintf("%d,", i+1)
		}
		return text + "]"
	}
	file := func(name string) string { return "topology = \"torus:4x4\"\n[[job]]\npattern = \"./" + name + "\"\n" }
	for _, tt := range []struct{ text, want string }{
		{"topology = \"torus:4x4\"\ncolour = 3\n" + job, `s.toml:2: unknown key "colour"`},
		{"topology = \"torus:0x4\"\n" + job, `s.toml:1: topology: dimensions "0x4"`},
		{"topology = \"tree:4x5/0\"\n" + job, `s.toml:1: topology: invalid network: "tree:4x5/0"`},
		{"topology = \"fattree:3\"\n" + job, `s.toml:1: topology: invalid network: "fattree:3"`},
		{"topology = \"none.toml\"\n" + job, "none.toml: no such file"},
		{"topology = \"net.toml\"\n" + job, "net.toml:2: link 1 (1.x+ 3.x+): no node 3"},
		{"topology = \"node.graphml\"\n" + job, `node.graphml:2: edge: target "b"`},
		{"topology = \"cut.graphml\"\n" + job, "cut.graphml:1: "},
		{"topology = \"torus:4x4\"\ncores = -1\n" + job, "s.toml:2: cores: -1 is not a whole number"},
		{"topology = \"torus:4x4\"\nrouter = []\n" + job, "s.toml:2: router: the list is empty"},
		{"topology = \"torus:4x4\"\nscheduler = \"best\"\n" + job, "s.toml:2: scheduler: "},
		{"topology = \"torus:4x4\"\n", "s.toml: no job"},
		{job, "s.toml: topology is missing"},
		{"topology = \"torus:4x4\"\nseed = \"x\"\n" + job, "s.toml:2: seed: x is not a whole number"},
		{"topology = \"torus:4x4\n" + job, "s.toml:1: "},
		{"x = " + strings.Repeat("{a = ", 5000) + "1" + strings.Repeat("}", 5000), "s.toml: line 1: more than 32 values"},
		{"\n" + strings.Repeat("a.", 300000) + "a = 1", "s.toml: line 2: more than 32 values"},
		{"topology = \"torus:2x2\"\n[[job]]\npattern = \"ring\"\nranks = 5\n", "s.toml:3: ring-5 has 5 ranks, more than 4 hosts"},
		{"topology = \"torus:4x4\"\n[[job]]\npattern = \"song\"\nranks = 5\n", `s.toml:3: pattern: "song" is not one of allreduce`},
		{"topology = \"torus:4x4\"\n[[job]]\npattern = \"ring\"\nranks = 4\nsubmit = \"never\"\n", `s.toml:5: submit: "never"`},
		{"topology = \"torus:4x4\"\n[[job]]\npattern = \"ring\"\nranks = 4\nduration = \"-1s\"\n", "s.toml:5: duration: -1s"},
		{"topology = \"torus:4x4\"\n[[job]]\npattern = \"ring\"\nranks = 4\nbytes = \"many\"\n", "s.toml:5: bytes: many"},
		{"topology = \"torus:4x4\"\n" + strings.Repeat(job+"count = 100000\n", 4), "s.toml:13: more than 262144 jobs: use fewer"},
		{"topology = \"torus:4x4\"\nseed = " + list(64) + "\n" + strings.Repeat(job, 2) + "count = 100000\n", "s.toml:9: 64 runs of 100001 jobs and more are over 4194304 in all"},
		{"topology = \"torus:4x4\"\nseed = " + list(4096) + "\n" + strings.Repeat("[[job]]\npattern = [\"ring\"]\nranks = [4]\n", 512), "s.toml:1538: ranks: 1025 lists for 4096 runs are too many"},
		{file("none.csv"), "none.csv: no such file"},
		{file("short.csv"), `s.toml:3: pattern: short.csv:1: invalid pattern: "0,1": use from,to,bytes`},
		{file("bad.csv"), "bad.csv:1: invalid pattern: \"a\" is not a rank\nbad.csv:2: \nbad.csv:3: \nbad.csv:4: "},
		{file("type.json"), "type.json:1: invalid pattern"},
		{file("cut.json"), "cut.json:2: invalid pattern"},
		{file("ranks.json"), "s.toml:3: pattern: ranks.json:1: invalid pattern: rank 0 says n_procs is 2, but there are 1 ranks"},
	} {
		write("s.toml", tt.text)
		status, stdout, stderr := call(t, "check", filepath.Join(dir, "s.toml"))
		lines, wants := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n"), strings.Split(tt.want, "\n")
		if status != cli.ExitFailure || stdout != "" || len(lines) != len(wants) {
			t.Errorf("%.200q: %d, %q\n%s", tt.text, status, stdout, stderr)
			continue
		}
		for i, want := range wants {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%.200q: line %q, want %q", tt.text, lines[i], want)
			}
		}
	}
}

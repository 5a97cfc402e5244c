package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadme(t *testing.T) {
	dir := t.TempDir()
	data, err := json.Marshal(fakeReport())
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	from := file("day.json", string(data))
	other := file("other.json", "{}")
	const begin, end = "<!-- begin: dsbench readme -->", "<!-- end: dsbench readme -->"
	to := file("README.md", "# A\n\n"+begin+"\nold\n"+end+"\n\nZ\n")
	unmarked := file("unmarked.md", "# A\n"+end+begin)
	t.Chdir(dir)
	for _, tt := range []struct {
		words          string
		status         int
		stdout, stderr string
	}{
		{"readme --check " + from + " " + to, 1, "", "README.md does not match"},
		{"readme " + from + " " + to, 0, "README.md is up to date\n", ""},
		{"readme --check " + from + " " + to, 0, "README.md matches", ""},
		{"readme --check " + from + " README.md", 0, "README.md matches", ""},
		{"readme " + other + " " + to, 1, "", "other.json: no report of dsbench report"},
		{"readme " + from + " " + unmarked, 1, "", "unmarked.md: the file lacks the lines"},
		{"readme " + from + " " + dir + "/none.md", 1, "", "none.md: no such file"},
		{"readme " + from, 2, "", "not 1 files"},
	} {
		status, stdout, stderr := runProgram(t.Context(), tt.words)
		if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || (stderr == "") != (tt.stderr == "") {
			t.Errorf("dsbench %s: status %d\n%s%s", tt.words, status, stdout, stderr)
		}
	}
	b, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{"# A\n\n" + begin + "\n", end + "\n\nZ\n", "| `ds`: direct sockets, two processes | 44 Gbit/s | 1.4 |", "[day.json](day.json)", "| iperf3, one stream | 50 Gbit/s | 200 Gbit/s | 4.0 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "old") {
		t.Error("the old text is still there")
	}
}

package report

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestReadCompressed reads a report as it is, compressed by gzip, and damaged.
func TestReadCompressed(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	text := []byte(`{"dsbench_report": 1, "runs": 3, "parts": [{"id": "p", "rows": [{"measure": "stream", "path": "lo"}]}]}`)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	plain, small := file("a.json", text), file("a.json.gz", b.Bytes())
	want, err := Read(plain)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Read(small); err != nil || !reflect.DeepEqual(got, want) || got.Runs != 3 {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	cut := file("cut.json.gz", b.Bytes()[:b.Len()-6])
	if _, err := Read(cut); err == nil || !strings.Contains(err.Error(), cut+": damaged: ") {
		t.Errorf("a file that lacks its end: %v", err)
	}
}

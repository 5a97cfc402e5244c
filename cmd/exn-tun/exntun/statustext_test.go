package exntun

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// What the nodes are shown as fits a terminal of 80 columns.
func TestStatusFits(t *testing.T) {
	for _, name := range []string{"status.txt", "sockets.txt", "ports.txt", "summary.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > tableWidth {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

func TestFoldColumns(t *testing.T) {
	for _, tt := range []struct{ widths, ends []int }{
		{[]int{}, []int{0}},
		{[]int{78}, []int{1}},
		{[]int{10, 66}, []int{2}},       // 2+10+2+66
		{[]int{10, 67}, []int{1, 2}},    // one too wide
		{[]int{10, 67, 3}, []int{1, 3}}, // 6+67+2+3: just fits
		{[]int{10, 67, 6, 66, 1}, []int{1, 2, 4, 5}},
		{[]int{200, 200}, []int{1, 2}}, // each alone, however wide
	} {
		if ends := foldColumns(tt.widths); !slices.Equal(ends, tt.ends) {
			t.Errorf("%v: %v, not %v", tt.widths, ends, tt.ends)
		}
	}
	var b bytes.Buffer
	(&table{&b}).writeRows("title", "a|"+strings.Repeat("b", 76)+"|c", "1||3", "1")
	if want := "\ntitle\n  a\n      " + strings.Repeat("b", 76) + "\n      c\n  1\n      3\n  1\n"; b.String() != want {
		t.Errorf("%q, not %q", b.String(), want)
	}
}

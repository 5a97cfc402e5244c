package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/test/testlab"
)

// What programs write repeatedly on one line is seen once, as it is at the end.
func TestScreen(t *testing.T) {
	for text, want := range map[string][]string{
		"a\r\nb\r\n":                            {"a", "b"},
		"a":                                     {"a"},
		"50 %\r100 %\r\x1b[Kdone\n":             {"done"},
		"50 %\rdone\n":                          {"done"},
		"\x1b[1;32mgreen\x1b[0m \x1b(Bx\tz\r\n": {"green Bx        z"},
		"ab\b\bX\n":                             {"Xb"},
		"µs\n\n\x07":                            {"µs", ""},
	} {
		for cut := range len(text) { // wherever a read has ended
			var s screen
			s.clearScreen()
			s.write([]byte(text[:cut]))
			s.write([]byte(text[cut:]))
			var got []string
			for _, o := range s.shownLines() {
				got = append(got, o.text)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%q, cut at %d: %q, want %q", text, cut, got, want)
			}
		}
	}
}

// The picture is well-formed XML with all text, in order of time.
func TestDraw(t *testing.T) {
	picture := drawSteps([]step{
		{"# two nodes", nil},
		{"echo '<a> & b'", []output{{0, "<a> & b"}, {time.Hour, "  later"}, {time.Hour, strings.Repeat("µ", columns) + "on"}}},
	})
	d := xml.NewDecoder(strings.NewReader(string(picture)))
	var texts []string
	for depth := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local == "text" && e.Attr[0].Value != "d" { // which is what it looks like before
				texts, depth = append(texts, ""), 1
			}
		case xml.EndElement:
			if e.Name.Local == "text" {
				depth = 0
			}
		case xml.CharData:
			if depth > 0 {
				texts[len(texts)-1] += string(e)
			}
		}
	}
	if want := []string{"# two nodes", "$ echo '<a> & b'", "<a> & b", "  later", strings.Repeat("µ", columns), "on"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
	if dim := strings.Count(string(picture), `class="d"`); dim != len(texts) {
		t.Errorf("%d of %d lines are there at the beginning", dim, len(texts))
	}
	if !strings.Contains(string(picture), "animation-delay:2325ms") {
		t.Errorf("an hour's pause is not a second: %s", picture)
	}
}

// Commands run on a terminal, one after the other, in one shell; one that fails is told.
func TestRootRecord(t *testing.T) {
	testlab.RequireTUN(t)
	steps, err := recordLines(t.Context(), t.TempDir(), []string{"#! x=hello", "# said", "echo $x", "test -t 1 && ls -A /dev/shm | wc -l"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, s.typed)
		for _, o := range s.out {
			got = append(got, "> "+o.text)
		}
	}
	if want := []string{"# said", "echo $x", "> hello", "test -t 1 && ls -A /dev/shm | wc -l", "> 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := recordLines(t.Context(), t.TempDir(), []string{"true", "echo no; false", "true"}); err == nil || !strings.Contains(err.Error(), "status 1") {
		t.Errorf("a command that fails: %v", err)
	}
	if err := run(t.Context(), nil); err == nil {
		t.Error("no arguments are no error")
	}
	if err := run(t.Context(), []string{"/no/such", os.DevNull}); err == nil {
		t.Error("no commands are no error")
	}
}

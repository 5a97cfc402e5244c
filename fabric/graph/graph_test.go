package graph

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, text, dir string) *Graph {
	t.Helper()
	g, err := Parse(text, dir)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestParse(t *testing.T) {
	for text, want := range map[string][3]int{ // vertices, hosts, channels
		"torus:4x4": {16, 16, 64}, "mesh:3": {3, 3, 4}, "tree:4x5/2": {26, 20, 56}, "fattree:4": {36, 16, 96}, "tree:1x2/1": {4, 2, 6},
	} {
		g := parse(t, text, "")
		if got := [3]int{len(g.Vertices()), len(g.Hosts()), len(g.Channels())}; got != want || g.Name() != text {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		for v := range g.Vertices() {
			for _, c := range g.Out(int32(v)) {
				if g.Channels()[c].From != int32(v) {
					t.Errorf("%s: channel %d does not leave %d", text, c, v)
				}
			}
			for _, c := range g.In(int32(v)) {
				if g.Channels()[c].To != int32(v) {
					t.Errorf("%s: channel %d does not lead to %d", text, c, v)
				}
			}
		}
	}
	for _, text := range []string{"", "torus:0", "torus:4x4x4x4", "ring:4", "tree:4x5", "tree:0x1/1", "tree:4/2", "tree:99999x99999/1", "fattree:3", "fattree:x", "none.toml", "none.graphml", "a.txt"} {
		if g, err := Parse(text, t.TempDir()); err == nil {
			t.Errorf("%q makes %v", text, g)
		}
	}
}

// What is written is read again, and the same.
func TestGraphML(t *testing.T) {
	for _, text := range []string{"tree:2x3/2", "torus:3x3"} {
		g := parse(t, text, "")
		var b bytes.Buffer
		if err := g.WriteGraphML(&b, Attribute{"load", func(c int32) uint64 { return uint64(c) }}); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "g.graphml"), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		again := parse(t, "g.graphml", dir)
		if diff := cmp.Diff(g.Vertices(), again.Vertices()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(g.Channels(), again.Channels()); diff != "" {
			t.Error(diff)
		}
	}
}

// A file of another program: undirected, with a default and a capacity.
func TestReadGraphML(t *testing.T) {
	g, err := ReadGraphML("x", strings.NewReader(`<graphml>
<key id="d0" for="node" attr.name="typ" attr.type="string"><default>switch</default></key>
<key id="d1" for="edge" attr.name="capacity" attr.type="double"/>
<graph edgedefault="undirected">
<node id="a"><data key="d0">host</data></node><node id="s"/><node id="b"><data key="d0">host</data></node>
<edge source="a" target="s"/><edge source="s" target="b"><data key="d1">2.5</data></edge>
</graph></graphml>`))
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Hosts()) != 2 || len(g.Channels()) != 4 || g.Channels()[3] != (Channel{2, 1, 2.5, -1}) {
		t.Errorf("hosts %v, channels %v", g.Hosts(), g.Channels())
	}
	if got := g.levelRows(); !cmp.Equal(got, []int{0, 1, 0}) {
		t.Errorf("levels %v", got)
	}
}

// Each mistake has its line.
func TestGraphMLMistakes(t *testing.T) {
	_, err := ReadGraphML("net.graphml", strings.NewReader(`<graphml>
<key id="t" for="node" attr.name="typ"/><key id="c" for="edge" attr.name="capacity"/><key id="p" for="edge" attr.name="port"/><key id="n" for="node" attr.name="capacity"/>
<graph edgedefault="directed">
<node id="a"><data key="t">router</data></node>
<node id="a"/>
<node id="b"><data key="n">-1</data></node>
<edge source="a" target="nobody"/>
<edge source="a" target="a"/>
<edge source="a" target="b"><data key="c">0</data></edge>
<edge source="a" target="b"><data key="p">x</data></edge>
</graph></graphml>`))
	if err == nil || !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	want := []string{`:4: node "a": typ "router"`, `:5: node "a" appears twice`, `:6: node "b": capacity "-1"`, `:7: edge: target "nobody"`,
		`:8: edge: it joins "a" to itself`, `:9: edge: capacity "0"`, `:10: edge: port "x"`}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Errorf("%d lines, want %d:\n%v", len(lines), len(want), err)
	}
	for i := range min(len(lines), len(want)) {
		if !strings.HasPrefix(lines[i], "net.graphml"+want[i]) {
			t.Errorf("line %q, want %q", lines[i], want[i])
		}
	}
	for text, want := range map[string]string{
		"<graphml><graph>": "line 1",
		"no":               "no nodes",
		`<graphml><graph><node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>`:                               `no route back to "a" from "b"`,
		`<graphml><key id="t" for="node" attr.name="typ"/><graph><node id="a"><data key="t">switch</data></node></graph></graphml>`: "it has no host",
	} {
		if _, err := ReadGraphML("x", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A drawing is well formed and has a line for each channel.
func TestWriteSVG(t *testing.T) {
	for _, text := range []string{"tree:2x3/2", "torus:3x3"} {
		g := parse(t, text, "")
		load := make([]uint64, len(g.Channels()))
		load[1] = 12345
		var b bytes.Buffer
		if err := g.WriteSVG(&b, load, load, 0); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "12345 flows, 12.3 kB</title>") {
			t.Errorf("%s: the load is not in the drawing", text)
		}
		lines := 0
		for d := xml.NewDecoder(&b); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "line" {
				lines++
			}
		}
		if lines < len(g.Channels()) {
			t.Errorf("%s: %d lines for %d channels", text, lines, len(g.Channels()))
		}
	}
	if err := parse(t, "fattree:28", "").WriteSVG(io.Discard, nil, nil, 0); err == nil {
		t.Error("6272 vertices and more were drawn")
	}
}

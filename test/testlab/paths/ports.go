package paths

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/test/numbered"
	"exnet/test/testlab"
)

// Planted has the program that checks ports send something wrong, as c/ports.c says, and returns
// what it says about that, without the numbers of connections and bytes.
func Planted(t *testing.T, plants ...string) (faults []string) {
	t.Helper()
	l := &lab{t: t, bin: buildPrograms(t)}
	l.bringUp(place{nodes: true, link: "shm"})
	for _, plant := range plants {
		var r Row
		l.runPorts(&r, 3, 1000, plant, l.spaces)
		if len(r.Faults) != 1 || r.Wrong != 1 {
			t.Errorf("%s: %d wrong: %q", plant, r.Wrong, r.Faults)
		}
		faults = append(faults, strings.Join(r.Faults, "; "))
	}
	return faults
}

// portRow moves words over ports of one node or of both.
func (l *lab) portRow(p path, r *Row) {
	l.t.Helper()
	spaces := l.spaces
	if p.way == ownPorts {
		spaces[1] = spaces[0]
	}
	for g := 0; g == 0 || r.Took < l.o.Time; g++ {
		l.runPorts(r, r.Conns, l.firstConn(), "-", spaces)
	}
}

// runPorts runs the program for ports at both ends once.
func (l *lab) runPorts(r *Row, conns, first int, plant string, spaces [2]*netns.NS) {
	l.t.Helper()
	begun := time.Now()
	fault := func(line string) { r.noteFault(line) }
	var ends [2]*testlab.Process
	var at [2]strings.Builder
	for i, ns := range spaces {
		ends[i] = l.startProgram("ports", ns, nil, l.toolPath(string(portsC)), strconv.Itoa(i), strconv.Itoa(conns), strconv.Itoa(first),
			strconv.FormatUint(l.o.Seed+uint64(l.rows), 10), plant)
		defer ends[i].Kill()
	}
	for i, p := range ends {
		l.awaitLine(p, "ready", func(line string) { at[i].WriteString(line + "\n") })
	}
	for i, p := range ends {
		if _, err := io.WriteString(p.In, at[1-i].String()); err != nil {
			l.t.Fatal(err)
		}
	}
	for i, p := range ends {
		s, _ := numbered.ParseSum(l.awaitLine(p, "sum ", fault))
		if i == 1 { // those of the other end are the same connections
			s.Conns = 0
		}
		r.Sum.Add(s)
	}
	for _, p := range ends {
		fmt.Fprintln(p.In, "end") // one that has ended fails below
	}
	for _, p := range ends {
		if !p.Ended(hang) || p.Err != nil {
			l.t.Errorf("%s: %v\n%s", p.Name, p.Err, &p.Log)
		}
	}
	r.Took += time.Since(begun)
	r.Share = 1
}

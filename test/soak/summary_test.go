package soak

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// summary is the outcome. Its JSON form is what -soak.json writes.
type summary struct {
	Seed        uint64            `json:"seed"`
	Seconds     float64           `json:"seconds"`
	Nodes       int               `json:"nodes"`
	Bytes       uint64            `json:"bytes"`     // that arrived, and were right
	InMemory    uint64            `json:"in_memory"` // of those by direct sockets
	Connections uint64            `json:"connections"`
	Direct      uint64            `json:"direct"`
	Kinds       map[string]tally  `json:"kinds"`
	Faults      map[string]int    `json:"faults"`
	Links       map[string]uint64 `json:"links"` // what the links that lose packets had to do
	Excused     map[string]uint64 `json:"excused"`
	Outlived    uint64            `json:"outlived"`     // direct sockets x ends of daemons
	OutlivedTCP uint64            `json:"outlived_tcp"` // the same, of TCP
	Interrupted uint64            `json:"datagrams_lost_in_faults"`
	Datagrams   map[string]uint64 `json:"datagrams_lost"` // without a fault
	Unreachable uint64            `json:"unreachable"`    // connections that did not find the neighbour, without a fault
	Before      levels            `json:"before"`
	After       levels            `json:"after"`

	Lost     uint64   `json:"bytes_lost"`
	Corrupt  uint64   `json:"corrupt"`
	Errors   uint64   `json:"errors"`
	Leaks    []string `json:"leaks"`
	Failures []string `json:"failures"`
}

// summarize adds everything up.
func (l *lab) summarize() summary {
	v := l.judge()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := summary{Nodes: len(l.nodes), Kinds: l.tallies, Faults: make(map[string]int), Links: l.linkCounters(), Excused: v.Excused,
		Outlived: v.Alive, OutlivedTCP: v.AliveTCP, Interrupted: v.Interrupted, Datagrams: v.Datagrams, Unreachable: v.Unreachable,
		Lost: v.Lost, Corrupt: v.Corrupt, Errors: v.Errors, Leaks: []string{}, Failures: l.failures}
	for kind, t := range l.tallies {
		s.Bytes += t.Bytes
		s.InMemory += t.InMemory
		if !slices.Contains(datagramKinds, kind) {
			s.Connections += t.Conns
		}
		s.Direct += t.Direct
	}
	for _, f := range l.faults {
		name := string(f.Kind)
		if f.Program != "" {
			name += ": " + f.Program
		}
		s.Faults[name]++
	}
	return s
}

var datagramKinds = []string{"udp", "ping", "join", "multicast"}

// count is the sum of the values of a map.
func count[V int | uint64](m map[string]V) (sum V) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// print writes s as text.
func (s summary) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("time", "%v, %d nodes, seed %d", time.Duration(s.Seconds*float64(time.Second)).Round(time.Second), s.Nodes, s.Seed)
	line("bytes", "%s, %s of them in memory", bytesText(s.Bytes), bytesText(s.InMemory))
	line("connections", "%d, %d of them direct", s.Connections, s.Direct)
	line("faults injected", "%d", count(s.Faults))
	line("bytes lost", "%d", s.Lost)
	line("corrupt", "%d", s.Corrupt)
	line("errors without a fault", "%d", s.Errors)
	line("leaks", "%d", len(s.Leaks))
	line("outlived a daemon", "%d direct sockets, %d TCP connections", s.Outlived, s.OutlivedTCP)
	line("ended by a fault", "%d connections", count(s.Excused))
	line("datagrams lost", "%d by faults, %d others", s.Interrupted, count(s.Datagrams))
	line("unreachable", "%d connections that no fault explains", s.Unreachable)
	w.Flush()

	fmt.Fprintln(out)
	fmt.Fprintln(w, "traffic\tconnections\tdirect\tbroken off\tdeadlines\tmessages\tanswers\tbytes\tin memory\t")
	for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
		t := s.Kinds[kind]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t\n", kind, t.Conns, t.Direct, t.Aborted, t.Deadline, t.Messages, t.Answers, bytesText(t.Bytes), bytesText(t.InMemory))
	}
	w.Flush()
	for _, part := range []struct {
		title string
		text  string
	}{{"fault\ttimes\t", list(s.Faults)}, {"ended by a fault\tconnections\t", list(s.Excused)}, {"bad links\t\t", list(s.Links)}} {
		fmt.Fprintf(out, "\n")
		fmt.Fprintf(w, "%s\n%s", part.title, part.text)
		w.Flush()
	}
	fmt.Fprintf(out, "\n")
	fmt.Fprintln(w, "at rest\tdescriptors\tmemfds\tgoroutines\tmemory, KB\t")
	for _, name := range slices.Sorted(maps.Keys(s.After)) {
		a, b := s.Before[name], s.After[name]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", name, change(a.Descriptors, b.Descriptors), change(a.Memfds, b.Memfds),
			change(a.Goroutines, b.Goroutines), change(a.AnonKB, b.AnonKB))
	}
	w.Flush()
	for _, leak := range s.Leaks {
		fmt.Fprintln(out, "leak:", leak)
	}
	for _, f := range s.Failures {
		fmt.Fprintln(out, "failure:", f)
	}
}

func list[V int | uint64](m map[string]V) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&text, "%s\t%d\t\n", name, m[name])
	}
	return text.String()
}

func change(a, b int) string {
	if a == b {
		return fmt.Sprint(a)
	}
	return fmt.Sprintf("%d -> %d", a, b)
}

// bytesText is a number of bytes for people.
func bytesText(n uint64) string {
	const units = "kMGTPE"
	v, unit := float64(n), -1
	for v >= 1000 && unit < len(units)-1 {
		v /= 1000
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %cB", v, units[unit])
}

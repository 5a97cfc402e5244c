package exnrun

import (
	"maps"
	"os"
	"slices"
	"sync"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
	"exnet/internal/cli"
)

// watch collects the connections of all processes that show their statistics.
//
// Concurrency: add may be called from many goroutines, the rest from one.
type watch struct {
	mu     sync.Mutex
	tables []*watched // +checklocks:mu
	// unseen: processes beyond those.
	unseen int // +checklocks:mu

	conns map[seenKey]*connstats.Connection
	lost  int // connections that are not shown: their entries were used anew before they were seen, or there are too many
}

// Bounds of what is remembered: a process may show as many connections as it likes.
const (
	maxProcesses   = 4096
	maxConnections = 1 << 17
)

// watched is the statistics of one process.
type watched struct {
	program string
	pid     int
	file    *os.File
	last    map[int]uint32 // sequence that each entry had
}

// seenKey names a connection.
type seenKey struct {
	w     *watched
	entry int
	seq   uint32
}

// addFile takes a file over. One that is known, of a program that has changed its broker, is
// not watched twice.
func (w *watch) addFile(program string, pid int, f *os.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tables) >= maxProcesses {
		w.unseen++
		f.Close()
		return
	}
	if info, err := f.Stat(); err == nil && slices.ContainsFunc(w.tables, func(t *watched) bool { return t.pid == pid && sameFile(t.file, info) }) {
		f.Close()
		return
	}
	w.tables = append(w.tables, &watched{program, pid, f, make(map[int]uint32)})
}

func sameFile(f *os.File, info os.FileInfo) bool {
	own, err := f.Stat()
	return err == nil && os.SameFile(own, info)
}

// countProcesses returns how many there were, of which only maxProcesses are seen.
func (w *watch) countProcesses() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tables) + w.unseen
}

// eachProcess calls f for every process that has shown its statistics.
func (w *watch) eachProcess(f func(program string, pid int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tables {
		f(t.program, t.pid)
	}
}

// missedPrograms has a line for each program that makes system calls which the library does not
// see.
func (w *watch) missedPrograms() (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tables {
		stays, passes := connstats.ReadMissed(int(t.file.Fd()))
		var list []string
		if text := explain.Stays(stays); text != "" {
			list = append(list, t.program+" stays on TCP: "+text)
		}
		if text := explain.Passes(passes); text != "" {
			list = append(list, t.program+": "+text)
		}
		for _, text := range list {
			if text = cli.Printable(text); !slices.Contains(lines, text) { // else a process of the same program says so
				lines = append(lines, text)
			}
		}
	}
	return lines
}

// readAll reads all statistics, and calls changed for each connection that is new or
// goes another way than before; nil: nobody.
func (w *watch) readAll(changed func(connstats.Connection)) {
	w.mu.Lock()
	tables := slices.Clone(w.tables)
	w.mu.Unlock()
	if w.conns == nil {
		w.conns = make(map[seenKey]*connstats.Connection)
	}
	for _, t := range tables {
		for _, c := range connstats.ReadAll(int(t.file.Fd())) {
			if last := t.last[c.Entry]; last != c.Seq {
				w.lost += max(int(c.Seq-last)/2-1, 0)
				t.last[c.Entry] = c.Seq
			}
			c.Program, c.PID = t.program, t.pid
			key := seenKey{t, c.Entry, c.Seq}
			old := w.conns[key]
			if old == nil && len(w.conns) >= maxConnections {
				w.lost++
				continue
			}
			if changed != nil && (old == nil || old.Mode != c.Mode || old.Why != c.Why) {
				changed(c)
			}
			w.conns[key] = &c
		}
	}
}

// listConnections returns the connections in the order of their set-up. One that was switched to
// the segment and moved nothing over it, closed by now or not, counts as TCP, with the reason
// that nothing has moved since.
func (w *watch) listConnections() []*connstats.Connection {
	all := slices.Collect(maps.Values(w.conns))
	for _, c := range all {
		if explain.WasDirect(c) {
			continue
		}
		if c.Mode == connstats.ModeDirect.String() || c.Via != connstats.PathNone && c.Why == connstats.WhyNothing {
			c.Why, c.Reason = connstats.WhyIdle, connstats.WhyIdle.String()
		}
		if c.Mode == connstats.ModeDirect.String() {
			c.Mode = connstats.ModeTCP.String()
		}
	}
	connstats.Sort(all)
	return all
}

// close ends the watch.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tables {
		t.file.Close()
	}
	w.tables = nil
}

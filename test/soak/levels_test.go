package soak

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// level is what a process holds.
type level struct {
	PID         int
	Descriptors int
	Memfds      int // of these
	Goroutines  int `json:",omitempty"` // of Go programs
	AnonKB      int // resident private memory
}

// levels are those of all programs, by node and name.
type levels map[string]level

// measure asks all programs, while nothing moves.
func (l *lab) measure() (levels, error) {
	all := make(levels)
	for _, n := range l.nodes {
		for _, p := range append([]*program{n.daemon}, n.programs...) {
			v, err := measure(p.pid())
			if err != nil {
				return nil, err
			}
			switch p.name {
			case roleServer, roleClient:
				e, err := p.tell("level", "level")
				if err != nil {
					return nil, err
				}
				v.Goroutines = e.Level.Goroutines
			case n.daemon.name:
				s, err := l.status(n)
				if err != nil {
					return nil, err
				}
				if v.Goroutines, err = goroutines(s.Metrics); err != nil {
					return nil, err
				}
			}
			name := p.name
			if p != n.daemon {
				name = fmt.Sprintf("%s, %s", n.daemon.name, p.name)
			}
			all[name] = v
		}
	}
	return all, nil
}

// measure looks at a process.
func measure(pid int) (v level, err error) {
	v.PID = pid
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return v, err
	}
	for _, path := range open {
		if target, err := os.Readlink(path); err == nil {
			v.Descriptors++
			if strings.HasPrefix(target, "/memfd:") {
				v.Memfds++
			}
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return v, err
	}
	_, rest, ok := strings.Cut(string(status), "RssAnon:")
	if fields := strings.Fields(rest); ok && len(fields) > 0 {
		v.AnonKB, err = strconv.Atoi(fields[0])
	}
	return v, err
}

// goroutines is that metric of a daemon.
func goroutines(url string) (int, error) {
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: readyTime}
	answer, err := web.Get(url)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			return strconv.Atoi(n)
		}
	}
	return 0, fmt.Errorf("%s has no go_goroutines", url)
}

// Growth of private memory that is taken for granted: buffers grow to what the traffic takes, and
// Go gives memory back when it likes.
const memoryGrowth = 64 << 10 // KB

// above says in which respects levels are above those of before.
func (now levels) above(before levels) (leaks []string) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		a, b := before[name], now[name]
		for _, v := range []struct {
			what        string
			a, b, slack int
		}{{"descriptors", a.Descriptors, b.Descriptors, 0}, {"memfds", a.Memfds, b.Memfds, 0}, {"goroutines", a.Goroutines, b.Goroutines, 2}} {
			if v.b > v.a+v.slack { // some goroutine is always about to end
				leaks = append(leaks, fmt.Sprintf("%s: %d %s, before %d", name, v.b, v.what, v.a))
			}
		}
		if a.PID == b.PID && b.AnonKB > a.AnonKB+memoryGrowth {
			leaks = append(leaks, fmt.Sprintf("%s: %d KB of memory, before %d", name, b.AnonKB, a.AnonKB))
		}
	}
	return leaks
}

// settleTime is how long what has ended may take to be gone. A broker forgets offers that nobody
// claimed after 10 s.
const (
	settleTime = time.Minute
	offerTime  = 12 * time.Second
)

// pause ends all traffic and returns what the programs hold then, after a while in which it falls:
// to the levels before, or if there are none until it does not change.
func (l *lab) pause(before levels) (levels, error) {
	if err := l.each(l.clients(), func(p *program) error { _, err := p.tell("pause", "paused"); return err }); err != nil {
		return nil, err
	}
	var last levels
	begin := time.Now()
	for end := begin.Add(settleTime); ; time.Sleep(time.Second) {
		now, err := l.measure()
		if err != nil {
			return nil, err
		}
		late := time.Now().After(end)
		if before != nil && (late || len(now.above(before)) == 0) {
			return now, nil
		}
		if before == nil && time.Since(begin) > offerTime && (late || last != nil && len(last.above(now)) == 0 && len(now.above(last)) == 0) {
			return now, nil
		}
		last = now
	}
}

// resume lets traffic go on.
func (l *lab) resume() error {
	return l.each(l.clients(), func(p *program) error { _, err := p.tell("resume", ""); return err })
}

// each does something with programs, all at the same time.
func (l *lab) each(all []*program, f func(*program) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, p := range all {
		wg.Go(func() { errs[i] = f(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// calmTime bounds the wait for all kinds of traffic when nothing is broken any more.
const calmTime = 5 * time.Minute

// allWorks waits until, from now on, every kind of traffic of every node to every other one has
// come about.
func (l *lab) allWorks() error {
	l.mu.Lock()
	clear(l.progress)
	l.mu.Unlock()
	var missing []string
	for end := time.Now().Add(calmTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if missing = l.missing(); len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("nothing is broken any more, but in %v there was no: %s", calmTime, strings.Join(missing, ", "))
}

// missing lists the traffic that has not been seen.
func (l *lab) missing() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.nodes {
		for _, b := range l.nodes {
			kinds := []string{"tcp", "ds", "ds-eager", "ds-tcp", "http", "udp", "ping", "join"}
			switch {
			case a == b:
				continue
			case b.program("redis") != nil:
				kinds = append(kinds, "redis")
			case b.program("echo") != nil:
				kinds = append(kinds, "run")
			}
			for _, kind := range kinds {
				if key := fmt.Sprintf("%d/%s/%d", a.id, kind, b.id); l.progress[key] == 0 {
					list = append(list, fmt.Sprintf("%s from node %d to %d", kind, a.id, b.id))
				}
			}
		}
	}
	return list
}

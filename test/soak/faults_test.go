package soak

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// breakThings does what is planned, several things at a time, but one at a time to each daemon and
// program. A machine that is slow does not get to the end of the plan in d. It returns when all is
// as before.
func (l *lab) breakThings(ctx context.Context, d time.Duration, faults []planned) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, f := range faults {
		select {
		case <-time.After(f.After):
		case <-ctx.Done():
			return
		}
		n := l.nodes[f.Node-1]
		p := n.daemon
		if f.Program != "" {
			p = n.program(f.Program)
		}
		p.turn.Lock() // in the order of the plan
		all.Go(func() {
			defer p.turn.Unlock() // +checklocksforce: its goroutine has it now
			over := l.begin(fault{Kind: f.Kind, Node: f.Node, Program: f.Program})
			defer over()
			if err := l.do(n, p, f); err != nil {
				l.fail("%s, node %d %s: %v", f.Kind, f.Node, f.Program, err)
			}
		})
	}
}

// do does one fault.
func (l *lab) do(n *node, p *program, f planned) error {
	switch f.Kind {
	case nodeStop, nodeCut, programStop:
		if err := p.signal(unix.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(f.For)
		if err := p.signal(unix.SIGCONT); err != nil {
			return err
		}
		if f.Kind == nodeCut {
			return l.linked(n)
		}
		return nil
	case programKill:
		return l.restart(p, unix.SIGKILL, f.For)
	case nodeKill, nodeRestart:
		s := unix.SIGKILL
		if f.Kind == nodeRestart {
			s = unix.SIGTERM
		}
		l.look(n)
		if err := l.restart(p, s, f.For); err != nil {
			return err
		}
		return l.linked(n)
	case ifDown:
		if err := n.ip("link", "set", ifname, "down"); err != nil {
			return err
		}
		time.Sleep(f.For)
		return n.ip("link", "set", ifname, "up")
	case ifMTU:
		if err := n.ip("link", "set", ifname, "mtu", strconv.Itoa(f.MTU)); err != nil {
			return err
		}
		time.Sleep(f.For)
		return n.ip("link", "set", ifname, "mtu", "65535")
	case routeMTU:
		route := []string{"route", "replace", "10.77.0.0/24", "dev", ifname, "proto", "kernel", "scope", "link", "src", addr(n.id, false).String()}
		if err := n.ip(append(route, "mtu", strconv.Itoa(f.MTU))...); err != nil {
			return err
		}
		time.Sleep(f.For)
		return n.ip(route...)
	}
	return fmt.Errorf("no such fault")
}

// restart ends a program and starts it again after a while. What was going on in it goes on.
func (l *lab) restart(p *program, s unix.Signal, pause time.Duration) error {
	if err := p.end(s); err != nil {
		return err
	}
	time.Sleep(pause)
	if err := p.start(); err != nil {
		return err
	}
	if p.name == roleClient || p.name == "python" {
		_, err := p.tell("resume", "")
		return err
	}
	return nil
}

// look notes the counters of a node's links, which end with its daemon.
func (l *lab) look(n *node) {
	s, err := l.status(n)
	if err != nil {
		return // it is told elsewhere if it does not answer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := make(map[string]uint64)
	for _, c := range s.Counters {
		layer, rest, _ := strings.Cut(c.Name, ".")
		if _, name, ok := strings.Cut(rest, "."); ok && layer == "wire" {
			sum[name] += c.Value
		}
	}
	l.links[s.PID] = sum
}

// linkCounters adds up what look has noted, by the holder of mu.
func (l *lab) linkCounters() map[string]uint64 {
	sum := make(map[string]uint64)
	for _, counters := range l.links {
		for name, n := range counters {
			sum[name] += n
		}
	}
	return sum
}

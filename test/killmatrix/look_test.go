package killmatrix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns"
)

// entry is what a process says about a direct socket in its statistics (SPEC.md, 6.3).
// The table is read where the process keeps it, so that it does not matter who is
// stopped or dead.
type entry struct {
	mode connstats.Mode
	why  connstats.Why
	n    [connstats.NumCounters]uint64
}

// Indices of an entry's counters.
const (
	sentDirect     = 0
	receivedDirect = 1
	sentShadow     = 2
	sentVELOLast   = 5
	sentRMAInfo    = 6
	sentShutdown   = 8
	ringUsed       = 16
	ringSize       = 17
)

// entry finds the connection between two addresses. nil: the process does not know it.
func (r *remote) entry(client, server netip.AddrPort) (*entry, error) {
	if r.stats == nil {
		if err := r.findStats(); err != nil || r.stats == nil {
			return nil, err
		}
	}
	const head, size = 256, 256
	b := make([]byte, head+512*size)
	n, err := r.stats.ReadAt(b, 0)
	if n < head+size {
		return nil, fmt.Errorf("%s: statistics: %w", r.Name, err)
	}
	le := binary.LittleEndian
	for e := b[head:n]; len(e) >= size; e = e[size:] {
		seq := le.Uint32(e)
		if seq == 0 || seq%2 == 1 || le.Uint16(e[48:]) != client.Port() || le.Uint16(e[50:]) != server.Port() ||
			netip.AddrFrom16([16]byte(e[16:32])).Unmap() != client.Addr() || netip.AddrFrom16([16]byte(e[32:48])).Unmap() != server.Addr() {
			continue
		}
		out := &entry{mode: connstats.Mode(e[4]), why: connstats.Why(e[6])}
		for i := range out.n {
			out.n[i] = le.Uint64(e[64+8*i:])
		}
		out.n[ringSize] &= math.MaxUint32 // above it is a time
		return out, nil
	}
	return nil, nil
}

// findStats opens the table of a process, if it has one.
func (r *remote) findStats() error {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.PID()))
	if err != nil {
		return err
	}
	for _, fd := range fds {
		name, err := os.Readlink(fd)
		if err != nil || !strings.Contains(name, "memfd:ex") || !strings.Contains(name, "-ds-stats") {
			continue
		}
		r.stats, err = os.Open(fd)
		return err
	}
	return nil
}

// descriptors counts those of a process.
func descriptors(pid int) (int, error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(fds), err
}

// listing names the descriptors of a process, for messages.
func listing(pid int) string {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	var all []string
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil {
			all = append(all, filepath.Base(fd)+"="+name)
		}
	}
	return strings.Join(all, " ")
}

// segments returns the memory of direct sockets that a process has mapped, by inode.
func segments(pid int) (map[string]bool, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	all := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		// proc_pid_maps(5): address perms offset dev inode pathname
		if f := strings.Fields(line); len(f) > 5 && f[5] == "/memfd:exnet-ds" {
			all[f[4]] = true
		}
	}
	return all, nil
}

// heldSegments is how many segments all these processes have mapped or open.
func heldSegments(inode map[string]bool, pids []int) error {
	for _, pid := range pids {
		now, err := segments(pid)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		for i := range inode {
			if now[i] {
				return fmt.Errorf("segment %s is still mapped by process %d", i, pid)
			}
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			name, err := os.Readlink(fd)
			if err != nil || !strings.HasPrefix(name, "/memfd:exnet-ds ") {
				continue
			}
			if st, err := os.Stat(fd); err == nil && inode[inodeOf(st)] {
				return fmt.Errorf("segment %s is still open in process %d", inodeOf(st), pid)
			}
		}
	}
	return nil
}

// tcpSocket is a line of /proc/net/tcp.
type tcpSocket struct {
	local, remote   uint16
	state           string // as there: 01 established, 06 time-wait, 0A listen
	inode           string // 0: of no process, or not accepted yet
	unacked, unread uint64 // bytes that it has
}

// tcpSockets lists the TCP sockets of a namespace, IPv4 (those that Go listens with are of
// IPv6 only for the wildcard address).
func tcpSockets(ns *netns.NS) (all []tcpSocket, err error) {
	var text []byte
	if err = ns.Do(func() error { text, err = os.ReadFile("/proc/thread-self/net/tcp"); return err }); err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[0] == "sl" {
			continue
		}
		var s tcpSocket
		var addr string
		if _, err := fmt.Sscanf(strings.Replace(f[1], ":", " ", 1), "%s %x", &addr, &s.local); err != nil {
			return nil, err
		}
		if _, err := fmt.Sscanf(strings.Replace(f[2], ":", " ", 1), "%s %x", &addr, &s.remote); err != nil {
			return nil, err
		}
		if _, err := fmt.Sscanf(strings.Replace(f[4], ":", " ", 1), "%x %x", &s.unacked, &s.unread); err != nil {
			return nil, err
		}
		s.state, s.inode = f[3], f[9]
		all = append(all, s)
	}
	return all, nil
}

// hasInterface reports whether a namespace has a network interface.
func hasInterface(ns *netns.NS, name string) (has bool, err error) {
	err = ns.Do(func() error {
		all, err := net.Interfaces()
		for _, i := range all {
			has = has || i.Name == name
		}
		return err
	})
	return has, err
}

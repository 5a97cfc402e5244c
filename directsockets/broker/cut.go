package broker

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/wire"
	"exnet/directsockets/segment"
)

// Limits of what is read of processes when networks are cut.
const (
	// maxMaps bounds how many mappings of a process are looked at.
	maxMaps = 1 << 17
	// cutTime bounds how long an owner's processes are read in a round: they may have very many
	// mappings, or keep the reader waiting for ever (by replacing a mapping of a file that never
	// answers). Connections of processes that were not read are ended.
	cutTime = time.Second
	// maxStuck is how many readers may wait for processes in all.
	maxStuck = 64
)

// procDir is where the processes are.
const procDir = "/proc"

// cutter tells the ends of connections that they go back to TCP. It belongs to one goroutine.
type cutter struct {
	proc  string                        // where the processes are
	stuck map[owner]chan []segment.Info // a reader that has not come back
	spent map[owner]time.Duration       // in this round
}

func newCutter(proc string) *cutter {
	return &cutter{proc: proc, stuck: make(map[owner]chan []segment.Info)}
}

// beginRound begins a round.
func (c *cutter) beginRound() {
	c.spent = make(map[owner]time.Duration)
	for of, done := range c.stuck {
		select {
		case <-done:
			delete(c.stuck, of)
		default:
		}
	}
}

// cutOff takes connections back to TCP. Where no segment is found, or the programs ignore the mark,
// the kernel ends the sockets.
func (c *cutter) cutOff(list []*watched) {
	var ended sync.WaitGroup
	missing := c.markSegments(list)
	for _, w := range list {
		if missing[w.nonce] == nil {
			w.logToClient("direct sockets: the network is cut, a connection goes back to TCP")
			continue
		}
		w.logToClient("direct sockets: the network is cut, a connection is ended")
		for _, h := range w.ends {
			if h.s != nil {
				ended.Go(func() { _ = h.s.diag.destroySocket(h.socket, h.local, h.remote) }) // or it has ended
			}
		}
	}
	ended.Wait()
}

// process is one that may have segments.
type process struct {
	pid   int
	owner owner
}

// markSegments writes into the segments of connections that the network is cut. It returns the
// connections without a segment, and those whose programs ignore the mark.
func (c *cutter) markSegments(list []*watched) (missing map[wire.Nonce]*watched) {
	missing = make(map[wire.Nonce]*watched)
	all := make(map[process]map[wire.Nonce]bool)
	for _, w := range list {
		missing[w.nonce] = w
		for _, h := range w.ends {
			if h.pid <= 0 {
				continue
			}
			p := process{h.pid, h.owner}
			if all[p] == nil {
				all[p] = make(map[wire.Nonce]bool)
			}
			all[p][w.nonce] = true
		}
	}
	for p, nonces := range all {
		for n := range nonces { // the other end's process has shown it
			if missing[n] == nil {
				delete(nonces, n)
			}
		}
		for _, i := range c.cutWithin(p, len(nonces), func(i segment.Info) bool { return nonces[i.Nonce] }) {
			delete(missing, i.Nonce)
		}
	}
	return missing
}

// cutWithin is cutSegments, for as long as the process's owner has time left in this round.
func (c *cutter) cutWithin(p process, most int, want func(segment.Info) bool) (heeded []segment.Info) {
	rest := cutTime - c.spent[p.owner]
	if most == 0 || rest <= 0 || c.stuck[p.owner] != nil || len(c.stuck) >= maxStuck {
		return nil
	}
	begin, done := time.Now(), make(chan []segment.Info, 1)
	go func() { done <- c.cutSegments(p.pid, most, want, begin.Add(rest)) }()
	t := time.NewTimer(rest + cutTime/4) // so that one who only has much to read comes back
	defer t.Stop()
	select {
	case heeded = <-done:
	case <-t.C:
		c.stuck[p.owner] = done
	}
	c.spent[p.owner] += time.Since(begin)
	return heeded
}

// cutSegments finds wanted segments among the mappings of a process and its descendants, up to a
// number of these, and tells both ends to go back to TCP. It returns the segments whose ends both
// obey. Descendants count because exn-run speaks to the broker for its programs.
func (c *cutter) cutSegments(pid, most int, want func(segment.Info) bool, until time.Time) (heeded []segment.Info) {
	dev, err := memoryDevice()
	if err != nil {
		return nil
	}
	family := []int{pid}
	for n := 0; n < len(family) && len(heeded) < most && time.Now().Before(until); n++ {
		dir := filepath.Join(c.proc, strconv.Itoa(family[n]))
		heeded = append(heeded, c.cutIn(dir, dev, most-len(heeded), want, until)...)
		family = append(family, childrenOf(dir, maxFamily-len(family))...)
	}
	return heeded
}

// maxFamily is how many descendants are read for a process that speaks to the broker.
const maxFamily = 1024

// childrenOf returns the child processes of a process, up to a number.
func childrenOf(dir string, most int) (pids []int) {
	tasks, err := filepath.Glob(filepath.Join(dir, "task", "*", "children"))
	if err != nil {
		return nil
	}
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && len(pids) < most {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// cutIn is cutSegments for one process, whose directory in /proc is given.
func (c *cutter) cutIn(dir, dev string, most int, want func(segment.Info) bool, until time.Time) (heeded []segment.Info) {
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil
	}
	defer f.Close()
	// 7f0000000000-7f0000001000 rw-s 00000000 00:01 1234    /memfd:exnet-ds (deleted)
	lines := bufio.NewScanner(f)
	for n := 0; n < maxMaps && len(heeded) < most && time.Now().Before(until) && lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[3] != dev || fields[1] != "rw-s" || fields[5] != "/memfd:exnet-ds" {
			continue
		}
		if of, heed := c.cutMapping(dir, fields[0], dev, want); heed {
			heeded = append(heeded, of)
		}
	}
	_ = lines.Err() // the process has ended: what it heeded before does not matter any more
	return heeded
}

// cutMapping does so with the file of one mapping. The process may have changed it since.
func (c *cutter) cutMapping(dir, at, dev string, want func(segment.Info) bool) (of segment.Info, heed bool) {
	// A path alone opens nothing of another file system, which might never answer.
	path, err := unix.Open(filepath.Join(dir, "map_files", at), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return of, false
	}
	defer func() { _ = unix.Close(path) }()
	if is, err := deviceOf(path); err != nil || is != dev {
		return of, false
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", path), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return of, false
	}
	defer func() { _ = unix.Close(fd) }()
	of, heed, err = segment.Cut(fd, want)
	return of, heed && err == nil
}

// memoryDevice is that of the file system of memfds, as /proc/PID/maps has it.
func memoryDevice() (string, error) {
	fd, err := unix.MemfdCreate("exnet-ds-device", unix.MFD_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return deviceOf(fd)
}

// deviceOf asks no file system for it.
func deviceOf(fd int) (string, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st)
	return fmt.Sprintf("%02x:%02x", st.Dev_major, st.Dev_minor), err
}

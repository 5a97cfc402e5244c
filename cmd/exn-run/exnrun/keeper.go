package exnrun

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/node/control"
	"exnet/node/rpc"
)

// maxKept is how many processes of one user other than root a broker stays for: each
// takes one of its descriptors. Beyond that its programs are served as long as the
// broker is there.
const maxKept = 512

// keeper knows the processes for which a broker stays.
//
// Concurrency: all methods may be called from many goroutines; close once.
type keeper struct {
	ln   *net.UnixListener
	done chan struct{} // closed when serveRequests has ended

	mu    sync.Mutex
	byPID map[int]kept   // belongs to mu; by process ID
	users map[uint32]int // belongs to mu; how many of them each user has
	since time.Time      // belongs to mu; when the last one came or was found ended
}

// kept is a process for which the broker stays.
type kept struct {
	pidfd int
	uid   uint32
}

// hasEnded reports whether the process has ended.
func (p kept) hasEnded() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func newKeeper(path string) (*keeper, error) {
	sweepKeepers(filepath.Dir(path))
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	k := &keeper{ln: ln, done: make(chan struct{}), byPID: make(map[int]kept), users: make(map[uint32]int), since: time.Now()}
	if os.Geteuid() == 0 { // as the broker itself
		err = os.Chmod(path, 0o666)
	}
	go k.serveRequests()
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// sweepKeepers removes the sockets of killed brokers of other namespaces, as package
// broker removes theirs.
func sweepKeepers(dir string) {
	for _, suffix := range []string{client.KeepSuffix, control.BrokerSuffix} {
		all, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil {
			return
		}
		for _, path := range all {
			if _, err := os.Stat(strings.TrimSuffix(path, suffix) + ".lock"); errors.Is(err, os.ErrNotExist) {
				_ = os.Remove(path) // it may be gone
			}
		}
	}
}

// acceptPause is how long exn-run waits after it could not accept a connection.
const acceptPause = 10 * time.Millisecond

func (k *keeper) serveRequests() {
	defer close(k.done)
	for conn := range rpc.Accept(context.Background(), k.ln, acceptPause, func(error) {}) {
		if cred := peerCred(conn); cred.Pid > 0 {
			k.holdFor(int(cred.Pid), cred.Uid)
		}
		_, _ = conn.Write([]byte{1})
		conn.Close()
	}
}

// holdFor has the broker stay until a process ends, however often it asks.
func (k *keeper) holdFor(pid int, uid uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since = time.Now()
	if p, there := k.byPID[pid]; there {
		if !p.hasEnded() {
			return
		}
		k.forgetLocked(pid, p) // another one has its number
	}
	if uid != 0 && k.users[uid] >= maxKept {
		k.sweepLocked()
		if k.users[uid] >= maxKept {
			return
		}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // it has ended, or there are no descriptors left
		return
	}
	k.byPID[pid] = kept{fd, uid}
	k.users[uid]++
}

// forgetLocked is called with mu held.
func (k *keeper) forgetLocked(pid int, p kept) {
	_ = unix.Close(p.pidfd)
	delete(k.byPID, pid)
	if k.users[p.uid]--; k.users[p.uid] == 0 {
		delete(k.users, p.uid)
	}
}

// sweepLocked forgets those that have ended. It is called with mu held.
func (k *keeper) sweepLocked() {
	for pid, p := range k.byPID {
		if p.hasEnded() {
			k.forgetLocked(pid, p)
			k.since = time.Now()
		}
	}
}

// idleTime is how long there has been none; 0: there is one.
func (k *keeper) idleTime() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweepLocked()
	if len(k.byPID) > 0 {
		return 0
	}
	return time.Since(k.since)
}

// close ends it, and forgets all.
func (k *keeper) close() error {
	err := k.ln.Close()
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	for pid, p := range k.byPID {
		k.forgetLocked(pid, p)
	}
	return err
}

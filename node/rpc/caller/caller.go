// Package caller says who is at the other end of a Unix socket, and which
// account's limits apply to what it holds.
//
// Most limits are those of a user. Root of the server's own namespaces has none. Root of a
// container without a user namespace has the same user ID as far as the kernel says, and is
// known by its mount and PID namespaces; all of it is one account, Guest: who may make
// namespaces can make many, and a limit for each would be none. Who may make user namespaces may
// have tens of thousands of users (subuid(5)): what is in one has the limits of the user who made
// it, and those of Guest if that is root.
package caller

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	_ "exnet/internal/linux"
)

// Account is what a limit applies to: a user, by its ID in the server's user namespace, Guest or
// Gone.
type Account uint32

const (
	// Root is root of the server's own mount and PID namespace.
	Root Account = 0
	// Guest is root of all others. No user has this ID (setresuid(2)).
	Guest Account = 1<<32 - 1
	// Gone is a user's process that has ended before it was looked at: nobody knows in which user
	// namespace it was.
	Gone Account = 1<<32 - 2
)

// Unlimited reports whether the limits of users are not for this one.
func (a Account) Unlimited() bool { return a == Root }

func (a Account) String() string {
	switch a {
	case Guest:
		return "root of a container"
	case Gone:
		return "processes that have ended"
	}
	return fmt.Sprintf("user %d", uint32(a))
}

// Caller is who has connected a socket.
type Caller struct {
	PID     int // in the server's PID namespace; 0: it is not in it
	UID     uint32
	Account Account
}

// Of returns who has connected.
func Of(conn syscall.Conn) (Caller, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Caller{}, err
	}
	var c Caller
	var credErr error
	if err := raw.Control(func(fd uintptr) { c, credErr = OfFd(int(fd)) }); err != nil {
		return Caller{}, err
	}
	return c, credErr
}

// OfFd is Of for a descriptor.
func OfFd(fd int) (Caller, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Caller{}, fmt.Errorf("who has connected: %w", err)
	}
	c := Caller{PID: int(cred.Pid), UID: cred.Uid, Account: Account(cred.Uid)}
	if c.UID != 0 {
		c.Account = ofUser(fd, c.PID, c.UID)
	} else if !isOwn(fd, c.PID) {
		c.Account = Guest
	}
	return c, nil
}

// ofUser is the account of a user's process.
func ofUser(fd, pid int, uid uint32) Account {
	if pid <= 0 || pid == os.Getpid() {
		return Account(uid)
	}
	of := Gone
	same, err := whileSame(fd, func() { of, _ = UserIn(fmt.Sprintf("/proc/%d", pid), uid) })
	switch {
	case err != nil || !same:
		return Gone
	case of == Gone: // it is there, and /proc does not show it to this user (hidepid, proc(5))
		return Account(uid)
	}
	return of
}

// isOwn reports whether the process that has connected is in the mount, the PID and the user
// namespace of this one. Whatever cannot be found out is no. A process that has ended, and may have
// been replaced by another one with its number, is none.
func isOwn(fd, pid int) bool {
	if pid <= 0 {
		return false
	}
	if pid == os.Getpid() {
		return true
	}
	own := true
	same, err := whileSame(fd, func() {
		for _, kind := range []string{"mnt", "pid", "user"} {
			var its, mine unix.Stat_t
			if unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, kind), &its) != nil || unix.Stat("/proc/self/ns/"+kind, &mine) != nil ||
				its.Dev != mine.Dev || its.Ino != mine.Ino {
				own = false
			}
		}
	})
	return own && same && err == nil
}

// InPIDs reports whether the process that has connected is in the PID namespace of this one. A
// container's is not, whoever it is. Whatever cannot be found out is no.
func InPIDs(conn *net.UnixConn) (in bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // it fails only of what is closed
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		same, err := whileSame(int(fd), func() { in = pidsOf(int(cred.Pid)) == 1 })
		in = in && same && err == nil
	})
	return in
}

// pidsOf is how many numbers a process has, one for each PID namespace from this one's on. Unlike
// the links in its ns directory, all users may read them. 0: it has ended.
func pidsOf(pid int) int {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // empty if it has ended
	_, numbers, _ := strings.Cut(string(status), "\nNSpid:")
	numbers, _, _ = strings.Cut(numbers, "\n")
	return len(strings.Fields(numbers))
}

// ErrUntrusted says that the process at the other end is not to be trusted.
var ErrUntrusted = errors.New("its owner is neither root nor this user")

// Trusted returns nil if the process at the other end, which made the socket that conn is connected
// to, is root's or this process's user's. ErrUntrusted: it is another one's.
func Trusted(conn *net.UnixConn) error {
	uid, err := UserOf(conn)
	if err == nil && uid != 0 && int(uid) != os.Geteuid() {
		err = fmt.Errorf("%w: user %d", ErrUntrusted, uid)
	}
	return err
}

// UserOf is the user of the process that made the socket that conn is connected to.
func UserOf(conn *net.UnixConn) (uint32, error) {
	cred, err := credOf(conn)
	return cred.Uid, err
}

// PIDOf is the number of that process, in this one's PID namespace; 0: it is not in it.
func PIDOf(conn *net.UnixConn) (int, error) {
	cred, err := credOf(conn)
	return int(cred.Pid), err
}

func credOf(conn *net.UnixConn) (cred unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return cred, err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		var is *unix.Ucred
		if is, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			cred = *is
		}
	})
	return cred, errors.Join(ctlErr, err)
}

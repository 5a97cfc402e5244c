package emp

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// overflowUID stands for the users that this user namespace does not have
// (user_namespaces(7)), such as the host's root.
const overflowUID = 65534

// checkPeer refuses a peer that is neither root, nor the user of this process,
// nor a member of the fabric's group. In a user namespace the kernel does not say
// who a user of another one is; then it is the directory's permissions alone that
// decide: to connect to a node takes the right to write to its socket, and to be
// connected to, the right to make one in the directory.
func (d *dir) checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("emp: %w", err)
	}
	var cred *unix.Ucred
	var groups []uint32
	var credErr, groupErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if d.group {
			groups, groupErr = peerGroups(int(fd))
		}
	}); err != nil {
		return fmt.Errorf("emp: %w", err)
	}
	if err := errors.Join(credErr, groupErr); err != nil {
		return fmt.Errorf("emp: credentials of a peer: %w", err)
	}
	if d.allowed(cred.Uid, append(groups, cred.Gid)) {
		return nil
	}
	return fmt.Errorf("emp: %w: process %d of user %d is not of this fabric's user or group", ErrRefused, cred.Pid, cred.Uid)
}

// allowed says whether a user with these groups may be a node.
func (d *dir) allowed(uid uint32, groups []uint32) bool {
	if uid == 0 || uid == uint32(os.Geteuid()) || d.foreign && uid == overflowUID {
		return true
	}
	for _, g := range groups {
		if d.group && g == d.gid {
			return true
		}
	}
	return false
}

package emp

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// overflowUID stands for the users that this user namespace does not have
// (user_namespaces(7)), such as the host's root.
const overflowUID = 65534

// checkPeer refuses a peer that is neither root, nor the user of this process, nor a
// member of the fabric's group. In a user namespace the kernel does not identify the
// users of others. Then only the directory's permissions decide: a peer that connects
// needs the right to write to the node's socket, and a peer that is connected to
// needed the right to make a socket in the directory.
//
// It returns the peer's process ID in this PID namespace, or 0 if it has none.
func (d *dir) checkPeer(conn *net.UnixConn) (pid int32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("emp: %w", err)
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
		return 0, fmt.Errorf("emp: %w", err)
	}
	if err := errors.Join(credErr, groupErr); err != nil {
		return 0, fmt.Errorf("emp: credentials of a peer: %w", err)
	}
	if d.mayRun(cred.Uid, append(groups, cred.Gid)) {
		return cred.Pid, nil
	}
	return 0, fmt.Errorf("emp: %w: process %d of user %d is not of this fabric's user or group", ErrRefused, cred.Pid, cred.Uid)
}

// Check returns an error unless the process at the other end of a Unix socket may use the
// node: it must be root, the node's user, or a member of the fabric's group. In a user
// namespace, where the kernel does not identify the users of others, the permissions of
// the socket's file decide for those.
func (m *Member) Check(conn *net.UnixConn) error {
	_, err := m.dir.checkPeer(conn)
	return err
}

// CheckNode is Check for a process that claims to be a node: it must also be the process
// that is linked as that node.
func (m *Member) CheckNode(conn *net.UnixConn, n fabric.NodeID) error {
	pid, err := m.dir.checkPeer(conn)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[n]
	if p == nil || p.gone || !p.greeted {
		return fmt.Errorf("emp: %w: process %d claims to be node %d, which is not linked", ErrRefused, pid, n)
	}
	if pid != p.pid {
		return fmt.Errorf("emp: %w: process %d claims to be node %d, which is process %d", ErrRefused, pid, n, p.pid)
	}
	return nil
}

// greeted records which process exchanged hellos as a node.
func (m *Member) greeted(p *peer, pid int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.pid, p.greeted = pid, true
}

// mayRun reports whether a user with these groups may run a node.
func (d *dir) mayRun(uid uint32, groups []uint32) bool {
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

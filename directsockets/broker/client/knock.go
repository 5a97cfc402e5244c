package client

import "golang.org/x/sys/unix"

// DoorPath is the socket at which programs tell a host's agent that they are there (SPEC.md, 6).
const DoorPath = SystemDir + "/agent" + SocketSuffix

// knockAt tells the agent at a door, if there is one, that this process is there: by connecting, as
// the kernel tells the agent who does. It waits for nobody.
func knockAt(door string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: door})
}

// HasAgent reports whether an agent of this host hears programs that start: it makes a broker for
// the namespace of one that asks.
func HasAgent() bool { return knockAt(DoorPath) == nil }

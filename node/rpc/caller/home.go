package caller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Home says in which container, and in whose session, a process runs: by its cgroup, which only
// those can change who may write that of another one.
type Home struct {
	// Container is the ID of its container, 64 digits; "": it is in none.
	Container string
	// Group is the path of that container's cgroup, with its hierarchy. It names one container,
	// where a user who makes cgroups in a session may give any of them another one's ID.
	Group string
	// User is the user, not root, in whose session (systemd's user.slice) it is; 0: in none.
	User uint32
}

// Ended is the home of a process that was gone when it was looked at.
var Ended = Home{Group: "ended"}

func (h Home) String() string {
	switch {
	case h == Ended:
		return "processes that have ended"
	case h.Container != "":
		return fmt.Sprintf("container %.12s", h.Container)
	}
	return "no container"
}

// idDigits is how long a container's ID is.
const idDigits = 64

// HomeIn reads a process's home from its cgroups: what /proc/PID/cgroup has, with a line for each
// hierarchy, such as 0::/system.slice/docker-ID.scope.
func HomeIn(groups []byte) (h Home) {
	for line := range strings.Lines(string(groups)) {
		line = strings.TrimSpace(line)
		_, path, _ := strings.Cut(line, ":/")
		if h.User == 0 {
			h.User = userIn(path)
		}
		if end := containerIn(line); end > 0 && h.Container == "" {
			h.Container, h.Group = line[end-idDigits:end], line[:end]
		}
	}
	return h
}

// userIn returns the user in whose session a cgroup is, which has all that the user starts.
func userIn(path string) uint32 {
	rest, ok := strings.CutPrefix(path, "user.slice/user-")
	if !ok {
		return 0
	}
	number, _, ok := strings.Cut(rest, ".slice/")
	user, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil {
		return 0
	}
	return uint32(user)
}

// containerIn returns where the first container's ID in a cgroup's path ends; 0: there is none.
// Runtimes have it as the last part of a name, which systemd may have made a scope:
// docker-ID.scope, libpod-ID, cri-containerd-ID.scope, crio-ID, ID. What is below it is its own.
func containerIn(line string) (end int) {
	at := 0
	for name := range strings.SplitSeq(line, "/") {
		id := strings.TrimSuffix(name, ".scope")
		if len(id) >= idDigits && strings.Trim(id[len(id)-idDigits:], "0123456789abcdef") == "" {
			return at + len(id)
		}
		at += len(name) + 1
	}
	return 0
}

// What is read of a process's cgroups, in bytes: a few lines at first, and a few dozen paths at the
// most.
const (
	fewGroups = 1 << 10
	maxGroups = 1 << 16
)

// homeOf reads the home of a process. Each client that connects has it read: package os, whose
// files are polled, would take twice as long.
func homeOf(pid string) (h Home, ok bool) {
	fd, err := unix.Open("/proc/"+pid+"/cgroup", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return h, false
	}
	defer unix.Close(fd)
	b := make([]byte, 0, fewGroups)
	for len(b) < maxGroups {
		b = slices.Grow(b, 1)
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return HomeIn(b), len(b) > 0
}

// ownHome is this process's.
var ownHome = sync.OnceValue(func() Home {
	h, _ := homeOf("self")
	return h
})

// HomeOf returns the home of the process that has connected the socket fd, whose number OfFd has
// returned. That of this process's own container is none, as is that of a process that is not to be
// seen from here. Ended: it is gone, whoever has the socket now.
func HomeOf(fd, pid int) Home {
	if pid <= 0 {
		return Home{}
	}
	h, ok := Home{}, false
	if same, err := whileSame(fd, func() { h, ok = homeOf(strconv.Itoa(pid)) }); err != nil || !same || !ok {
		return Ended
	}
	if h.Group == ownHome().Group {
		h.Container, h.Group = "", ""
	}
	return h
}

// whileSame calls look, which looks at the process that has connected a socket by its number, and
// reports whether the number was that process's for as long. Before Linux 6.5 it has to do.
func whileSame(fd int, look func()) (bool, error) {
	const soPeerPidfd = 77
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPidfd)
	if err == unix.ENOPROTOOPT {
		look()
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(pidfd)
	look()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n == 0, err // it lives: what was looked at was its own
}

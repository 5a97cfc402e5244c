package caller

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"exnet/internal/netns/netnstest"
	"exnet/node/rpc/caller/callertest"
)

var idA, idB = strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba98", 8)

// A process's home is the outermost container of its cgroup, whatever that has made below it, and
// the user in whose session it is.
func TestHomeIn(t *testing.T) {
	for name, tt := range map[string]struct {
		groups string
		want   Home
	}{
		"none":           {"0::/\n", Home{}},
		"a service":      {"0::/system.slice/redis.service\n", Home{}},
		"Docker":         {"0::/system.slice/docker-" + idA + ".scope\n", Home{idA, "0::/system.slice/docker-" + idA, 0}},
		"podman":         {"0::/machine.slice/libpod-" + idA + ".scope/container\n", Home{idA, "0::/machine.slice/libpod-" + idA, 0}},
		"forged below":   {"0::/machine.slice/libpod-" + idA + ".scope/container/" + idB + "\n", Home{idA, "0::/machine.slice/libpod-" + idA, 0}},
		"by cgroupfs":    {"12:pids:/docker/" + idA + "\n0::/docker/" + idA + "\n", Home{idA, "12:pids:/docker/" + idA, 0}},
		"kubepods":       {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12.slice/cri-containerd-" + idA + ".scope\n", Home{idA, "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12.slice/cri-containerd-" + idA, 0}},
		"rootless":       {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA + ".scope\n", Home{idA, "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + idA, 1000}},
		"a session":      {"0::/user.slice/user-1000.slice/session-2.scope\n", Home{User: 1000}},
		"root's session": {"0::/user.slice/user-0.slice/session-2.scope\n", Home{}},
		"no session":     {"0::/system.slice/user.slice/user-1000.slice/x\n", Home{}},
		"no user":        {"0::/user.slice/user-99999999999.slice/x\n", Home{}},
		"too short":      {"0::/docker/" + idA[1:] + "\n", Home{}},
	} {
		if got := HomeIn([]byte(tt.groups)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// A socket's home is that of the process that has connected it, where it is now; one that has ended
// has none that counts, and this process's own container is none.
func TestHomeOf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	groups := map[string]*os.File{idA: netnstest.Container(t, idA), idB: netnstest.Container(t, idB)}
	ln := callertest.Listen(t)
	conn, pid, end := callertest.Start(t, ln, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(groups[idA].Fd())})
	if h := home(t, conn); h.Container != idA || !strings.Contains(h.Group, idA) {
		t.Errorf("in a cgroup of its own: %+v", h)
	}
	netnstest.Enter(t, groups[idB], pid)
	if h := home(t, conn); h.Container != idB {
		t.Errorf("after it has moved: %+v", h)
	}
	end()
	if h := home(t, conn); h != Ended {
		t.Errorf("after it has ended: %+v", h)
	}
	own, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	accepted, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if h := home(t, accepted); h.Container != "" || h.Group != "" {
		t.Errorf("this process: %+v", h)
	}
}

func home(t *testing.T, conn *net.UnixConn) (h Home) {
	t.Helper()
	c, err := Of(conn)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { h = HomeOf(int(fd), c.PID) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

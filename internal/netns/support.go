package netns

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Privileged reports whether this process has the two capabilities that network
// namespaces and interfaces need: CAP_SYS_ADMIN and CAP_NET_ADMIN. Without them,
// ReexecInUserNS is worth a try.
func Privileged() bool { return capable(1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN) }

// NetAdmin reports whether this process has CAP_NET_ADMIN, which is enough for
// interfaces in the namespace that it is in.
func NetAdmin() bool { return capable(1 << unix.CAP_NET_ADMIN) }

func capable(need uint32) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // capabilities 0..31 are in the first
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&need == need
}

// createHint says what to do when a network namespace could not be made.
func createHint(err error) string {
	switch {
	case errors.Is(err, unix.EINVAL):
		return ": this kernel has no network namespaces (CONFIG_NET_NS)"
	case errors.Is(err, unix.ENOSPC):
		return ": too many namespaces: raise the sysctl user.max_net_namespaces"
	case !errors.Is(err, unix.EPERM):
		return ""
	case InUserNS():
		return userNSHint(err, readSysctl)
	}
	return ": run as root"
}

// readSysctl returns the value of a sysctl, "" if the kernel does not have it.
func readSysctl(name string) string {
	text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

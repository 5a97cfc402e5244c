package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Examine runs all checks. Those for what exnet cannot do without come first.
func Examine(h Host) []Finding {
	checks := []func(Host) []Finding{
		checkKernel, checkMemory, checkBarrier, tunDevice, checkNamespaces, anyNetwork, checkPodman, checkCapabilities, checkDescriptors, checkMappings, checkCompiler,
		checkCPUs, checkGovernor, realTime, checkCongestion, checkBuffers, checkListing52, checkBacklog,
	}
	var all []Finding
	for _, c := range checks {
		all = append(all, c(h)...)
	}
	return all
}

func oneFinding(f Finding) []Finding { return []Finding{f} }

// Kernel versions: SO_NETNS_COOKIE came with 5.14, the newest that is needed.
const needMajor, needMinor = 5, 14

func checkKernel(h Host) []Finding {
	f := Finding{Check: "kernel", Verdict: OK}
	release, _ := h.readText("proc/sys/kernel/osrelease")
	f.Found = release
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		f.Verdict, f.Found = Note, "unknown version "+strconv.Quote(release)
		return oneFinding(f)
	}
	if major < needMajor || major == needMajor && minor < needMinor {
		f.Verdict = Fail
		f.Change = fmt.Sprintf("use Linux %d.%d or later", needMajor, needMinor)
		f.Why = "the broker of direct sockets tells network namespaces apart by SO_NETNS_COOKIE; shared memory is protected by F_SEAL_FUTURE_WRITE (5.1)"
	}
	return oneFinding(f)
}

func checkMemory(h Host) []Finding {
	f := Finding{Check: "sealed memory", Verdict: OK, Found: "memfd with seals"}
	if err := h.SealedMemory(); err != nil {
		f.Verdict, f.Found = Fail, err.Error()
		f.Change = "allow memfd_create and fcntl(F_ADD_SEALS), for example in the container's seccomp profile"
		f.Why = "daemons and direct sockets share memory by sealed memfds only"
	}
	return oneFinding(f)
}

func checkBarrier(h Host) []Finding {
	f := Finding{Check: "membarrier", Verdict: OK, Found: "expedited"}
	if err := h.Membarrier(); err != nil {
		f.Verdict, f.Found = Note, err.Error()
		f.Change = "allow membarrier(2), for example in the container's seccomp profile"
		f.Why = "without it every message of a direct socket costs a fence of its sender"
	}
	return oneFinding(f)
}

func tunDevice(h Host) []Finding {
	f := Finding{Check: "/dev/net/tun", Verdict: OK, Found: "can be opened"}
	if err := h.OpenTUN(); err != nil {
		f.Verdict, f.Found = Fail, err.Error()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			f.Change = "modprobe tun, or give the container the device (--device /dev/net/tun)"
		case errors.Is(err, os.ErrPermission):
			f.Change = "run as root, or let this user open it: chmod 0666 /dev/net/tun (what one can do with it is checked elsewhere)"
		default:
			f.Change = "look at the device: ls -l /dev/net/tun should say crw-rw-rw- 10, 200"
		}
		f.Why = "exn0 is a TUN device; direct sockets on loopback (exn-run --loopback) do without"
	}
	return oneFinding(f)
}

func checkNamespaces(h Host) []Finding {
	f := Finding{Check: "network namespaces", Verdict: OK, Found: "can be made"}
	if err := h.Namespace(); err != nil {
		f.Verdict, f.Found = Warn, err.Error()
		f.Change = "run as root, or allow user namespaces: sysctl user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 (those that exist)"
		f.Why = "exn-tun demo and the tests put each node into a namespace of its own; exn-tun up does not need it"
	}
	return oneFinding(f)
}

func anyNetwork(h Host) []Finding {
	f := Finding{Check: "direct over any network", Verdict: OK, Found: "BPF and cgroup2 pair the sockets of this host"}
	if err := h.Pairing(); err != nil {
		f.Verdict, f.Found = Note, err.Error()
		f.Change = "run as root of the host, on Linux 5.15 or later with BPF, CONFIG_CGROUP_BPF and cgroup2"
		f.Why = "exn-tun agent needs it to join containers over their own networks, and ends without it: there they stay on TCP; exn-tun up and exn-run --loopback do without"
	}
	return oneFinding(f)
}

// Podman's own packages only recommend what its networks need.
func checkPodman(h Host) []Finding {
	if _, err := h.LookPath("podman"); err != nil {
		return nil
	}
	_, noIPTables := h.LookPath("iptables")
	_, noNFT := h.LookPath("nft")
	f := Finding{Check: "podman's networks", Verdict: OK, Found: "iptables"}
	if noIPTables == nil {
		return oneFinding(f)
	}
	f.Verdict, f.Found = Note, "nft, no iptables"
	f.Change = "if podman says netavark: \"No such file or directory\": apt-get install iptables"
	f.Why = "netavark makes the rules of a container's network by iptables, and newer versions by nft; it does not name the program that it lacks"
	if noNFT != nil {
		f.Verdict, f.Found = Warn, "neither iptables nor nft"
		f.Change = "apt-get install iptables"
	}
	return oneFinding(f)
}

func checkCapabilities(h Host) []Finding {
	f := Finding{Check: "CAP_NET_ADMIN", Verdict: OK, Found: "yes"}
	if !h.capable(unix.CAP_NET_ADMIN) {
		f.Verdict, f.Found = Warn, "no"
		f.Change = "run exn-tun up as root or with setcap cap_net_admin,cap_sys_nice+ep; exn-tun demo makes a user namespace instead"
		f.Why = "setting an interface up needs this capability"
	}
	return oneFinding(f)
}

// A direct connection has two descriptors: the socket and its doorbell.
const goodFiles = 65536

func checkDescriptors(h Host) []Finding {
	f := Finding{Check: "descriptors", Verdict: OK, Found: fmt.Sprintf("%d, at most %d", h.Files, h.FilesHard)}
	if h.Files < goodFiles {
		f.Verdict = Note
		f.Change = fmt.Sprintf("ulimit -n %d (LimitNOFILE= in a systemd unit)", goodFiles)
		f.Why = "a direct connection takes two descriptors; when there are none left, connections stay on TCP"
		if h.Files < 1024 {
			f.Verdict = Warn
		}
	}
	return oneFinding(f)
}

const goodMaps = 65530

func checkMappings(h Host) []Finding {
	n, ok := h.lastNumber("vm.max_map_count")
	if !ok {
		return nil
	}
	f := Finding{Check: "vm.max_map_count", Verdict: OK, Found: strconv.FormatUint(n, 10)}
	if n < goodMaps {
		f.Verdict, f.Change = Warn, fmt.Sprintf("sysctl vm.max_map_count=%d", goodMaps)
		f.Why = "each direct connection is a mapping in both of its processes"
	}
	return oneFinding(f)
}

func checkCompiler(h Host) []Finding {
	f := Finding{Check: "preload library", Verdict: OK}
	if f.Found = h.Library(); f.Found != "" {
		return oneFinding(f)
	}
	if path, err := h.LookPath("cc"); err == nil {
		f.Found = "built when needed, by " + path
		return oneFinding(f)
	}
	f.Verdict, f.Found = Warn, "not installed, and no C compiler"
	f.Change = "install gcc and libc6-dev, or put libexnds.so beside exn-run or into /usr/lib/exnet"
	f.Why = "exn-run gives programs a library that it builds once for each user"
	return oneFinding(f)
}

func checkCPUs(h Host) []Finding {
	f := Finding{Check: "CPUs", Verdict: OK, Found: strconv.Itoa(h.CPUs)}
	if h.CPUs < 2 {
		f.Verdict, f.Change = Note, "use two CPUs or more"
		f.Why = "with one CPU, the two ends of a connection and the data path take turns; nothing can be gained by spinning"
	}
	return oneFinding(f)
}

// checkGovernor checks the CPU governor (thesis, section 5.6.1.2).
func checkGovernor(h Host) []Finding {
	f := Finding{Check: "CPU governor", Verdict: OK}
	files, _ := fs.Glob(h.Root, "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor") // the pattern is valid
	var all []string
	for _, name := range files {
		if s, ok := h.readText(name); ok && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	slices.Sort(all)
	f.Found = strings.Join(all, ", ")
	switch {
	case len(all) == 0:
		f.Found = "cannot be seen from here (a virtual machine, or no scaling)"
	case len(all) > 1 || all[0] != "performance":
		f.Verdict, f.Change = Warn, "cpupower frequency-set -g performance"
		f.Why = "a CPU that saves power wakes late and runs slowly (thesis section 5.6.1.2)"
	}
	return oneFinding(f)
}

func realTime(h Host) []Finding {
	f := Finding{Check: "real-time priority", Verdict: OK, Found: "allowed"}
	if !h.capable(unix.CAP_SYS_NICE) {
		f.Verdict, f.Found = Note, "not allowed"
		f.Change = "run exn-tun up as root, or with setcap cap_net_admin,cap_sys_nice+ep"
		f.Why = "under the fair scheduler the data path is runnable but not running a fifth of the time when programs are busy"
	}
	return oneFinding(f)
}

func checkCongestion(h Host) []Finding {
	cc, ok := h.sysctl("net.ipv4.tcp_congestion_control")
	if !ok {
		return nil
	}
	f := Finding{Check: "congestion control", Verdict: OK, Found: cc}
	if cc == "bbr" {
		f.Verdict, f.Change = Note, "sysctl net.ipv4.tcp_congestion_control=cubic (the thesis has htcp)"
		f.Why = "BBR paces what it sends: over loopback and exn0 it moves about half of what cubic does"
	}
	return oneFinding(f)
}

// checkBuffers checks the sizes of listing 5.2, which suit a long link of 100 Gbit/s. On one host a
// few megabytes are enough.
func checkBuffers(h Host) []Finding {
	const enough = 4 << 20
	var all []Finding
	for _, name := range []string{"net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"} {
		n, ok := h.lastNumber(name)
		if !ok {
			continue // not in this namespace
		}
		f := Finding{Check: name, Verdict: OK, Found: strconv.FormatUint(n, 10)}
		if n < enough {
			f.Verdict, f.Change = Note, fmt.Sprintf("sysctl %s=%d", name, enough)
			if strings.HasPrefix(name, "net.ipv4") {
				f.Change = fmt.Sprintf("sysctl %s='4096 131072 %d'", name, enough)
			}
			f.Why = "64 KB segments need windows of several of them; the thesis's listing 5.2 sets 2147483647, for links over a distance"
		}
		all = append(all, f)
	}
	return all
}

// checkListing52 checks the switches of listing 5.2.
func checkListing52(h Host) []Finding {
	var all []Finding
	for _, s := range []struct{ name, want, why string }{
		{"net.ipv4.tcp_window_scaling", "1", "without it a window ends at 64 KB, one frame of exn0"},
		{"net.ipv4.tcp_no_metrics_save", "0", "a new connection begins with what the last one learned (listing 5.2)"},
	} {
		got, ok := h.sysctl(s.name)
		if !ok {
			continue
		}
		f := Finding{Check: s.name, Verdict: OK, Found: got}
		if got != s.want {
			f.Verdict, f.Change, f.Why = Note, "sysctl "+s.name+"="+s.want, s.why
		}
		all = append(all, f)
	}
	if got, ok := h.sysctl("net.ipv4.tcp_timestamps"); ok { // the listing has 0
		found := got
		if got != "0" {
			found += " (0 in listing 5.2: it saves 12 bytes a packet, which is nothing at this MTU; leave it)"
		}
		all = append(all, Finding{Check: "net.ipv4.tcp_timestamps", Verdict: OK, Found: found})
	}
	return all
}

func checkBacklog(h Host) []Finding {
	const enough = 1024
	n, ok := h.lastNumber("net.core.somaxconn")
	if !ok {
		return nil
	}
	f := Finding{Check: "net.core.somaxconn", Verdict: OK, Found: strconv.FormatUint(n, 10)}
	if n < enough {
		f.Verdict, f.Change = Note, fmt.Sprintf("sysctl net.core.somaxconn=%d", enough)
		f.Why = "connections that come faster than a server accepts them are refused beyond it"
	}
	return oneFinding(f)
}

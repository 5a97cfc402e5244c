package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"exnet/internal/netns/netnstest"
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }

// healthy is a host with nothing to say about.
func healthy() Host {
	ok := func() error { return nil }
	return Host{
		Root: fstest.MapFS{
			"proc/sys/kernel/osrelease":                             file("6.18.0-test"),
			"proc/self/status":                                      file("Name:\tx\nCapEff:\t000001ffffffffff\nSeccomp:\t0"),
			"proc/sys/vm/max_map_count":                             file("65530"),
			"proc/sys/net/ipv4/tcp_congestion_control":              file("cubic"),
			"proc/sys/net/core/rmem_max":                            file("4194304"),
			"proc/sys/net/core/wmem_max":                            file("4194304"),
			"proc/sys/net/ipv4/tcp_rmem":                            file("4096\t131072\t33554432"),
			"proc/sys/net/ipv4/tcp_wmem":                            file("4096\t16384\t4194304"),
			"proc/sys/net/ipv4/tcp_window_scaling":                  file("1"),
			"proc/sys/net/ipv4/tcp_no_metrics_save":                 file("0"),
			"proc/sys/net/core/somaxconn":                           file("4096"),
			"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":  file("performance"),
			"sys/devices/system/cpu/cpu11/cpufreq/scaling_governor": file("performance"),
		},
		CPUs: 2, Files: 1 << 20, FilesHard: 1 << 20,
		OpenTUN: ok, Namespace: ok, Membarrier: ok, SealedMemory: ok, Pairing: ok,
		Library:  func() string { return "" },
		LookPath: func(s string) (string, error) { return "/usr/bin/" + s, nil },
	}
}

func TestHealthy(t *testing.T) {
	for _, f := range Examine(healthy()) {
		if f.Verdict != OK || f.Change != "" || f.Found == "" {
			t.Errorf("%+v", f)
		}
	}
}

// Every check notices what it is for, and no other does.
func TestFindings(t *testing.T) {
	set := func(name, value string) func(*Host) {
		return func(h *Host) { h.Root.(fstest.MapFS)[name] = file(value) }
	}
	without := func(programs ...string) func(*Host) {
		return func(h *Host) {
			h.LookPath = func(s string) (string, error) {
				if slices.Contains(programs, s) {
					return "", errors.New("no")
				}
				return "/usr/bin/" + s, nil
			}
		}
	}
	for _, tt := range []struct {
		check  string
		spoil  func(*Host)
		want   Verdict
		change string // part of the advice
	}{
		{"kernel", set("proc/sys/kernel/osrelease", "5.13.9"), Fail, "5.14"},
		{"kernel", set("proc/sys/kernel/osrelease", "4.19"), Fail, "5.14"},
		{"kernel", set("proc/sys/kernel/osrelease", "custom"), Note, ""},
		{"sealed memory", func(h *Host) { h.SealedMemory = func() error { return unix.EPERM } }, Fail, "seccomp"},
		{"membarrier", func(h *Host) { h.Membarrier = func() error { return unix.ENOSYS } }, Note, "seccomp"},
		{"/dev/net/tun", func(h *Host) { h.OpenTUN = func() error { return unix.ENOENT } }, Fail, "modprobe tun"},
		{"/dev/net/tun", func(h *Host) { h.OpenTUN = func() error { return unix.EACCES } }, Fail, "chmod 0666"},
		{"/dev/net/tun", func(h *Host) { h.OpenTUN = func() error { return unix.ENODEV } }, Fail, "ls -l"},
		{"network namespaces", func(h *Host) { h.Namespace = func() error { return unix.EPERM } }, Warn, "user.max_user_namespaces"},
		{"direct over any network", func(h *Host) { h.Pairing = func() error { return unix.EPERM } }, Note, "cgroup2"},
		{"podman's networks", without("iptables"), Note, "apt-get install iptables"},
		{"podman's networks", without("iptables", "nft"), Warn, "apt-get install iptables"},
		{"CAP_NET_ADMIN", set("proc/self/status", "CapEff:\t0000000000800000"), Warn, "cap_net_admin"},
		{"real-time priority", set("proc/self/status", "CapEff:\t0000000000001000"), Note, "cap_sys_nice"},
		{"descriptors", func(h *Host) { h.Files = 4096 }, Note, "ulimit -n 65536"},
		{"descriptors", func(h *Host) { h.Files = 256 }, Warn, "ulimit"},
		{"vm.max_map_count", set("proc/sys/vm/max_map_count", "1000"), Warn, "65530"},
		{"preload library", func(h *Host) { h.LookPath = func(string) (string, error) { return "", errors.New("no") } }, Warn, "gcc"},
		{"CPUs", func(h *Host) { h.CPUs = 1 }, Note, "two"},
		{"CPU governor", set("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"), Warn, "cpupower"},
		{"congestion control", set("proc/sys/net/ipv4/tcp_congestion_control", "bbr"), Note, "cubic"},
		{"net.core.rmem_max", set("proc/sys/net/core/rmem_max", "212992"), Note, "4194304"},
		{"net.ipv4.tcp_wmem", set("proc/sys/net/ipv4/tcp_wmem", "4096 16384 65536"), Note, "'4096 131072 4194304'"},
		{"net.ipv4.tcp_window_scaling", set("proc/sys/net/ipv4/tcp_window_scaling", "0"), Note, "=1"},
		{"net.ipv4.tcp_no_metrics_save", set("proc/sys/net/ipv4/tcp_no_metrics_save", "1"), Note, "=0"},
		{"net.core.somaxconn", set("proc/sys/net/core/somaxconn", "128"), Note, "1024"},
	} {
		h := healthy()
		tt.spoil(&h)
		found := false
		for _, f := range Examine(h) {
			switch {
			case f.Check == tt.check:
				found = true
				if f.Verdict != tt.want || !strings.Contains(f.Change, tt.change) || tt.change != "" && f.Why == "" {
					t.Errorf("%s: %+v, want %v with %q", tt.check, f, tt.want, tt.change)
				}
			case f.Verdict != OK:
				t.Errorf("%s spoilt: %+v", tt.check, f)
			}
		}
		if !found {
			t.Errorf("%s is not checked", tt.check)
		}
	}
}

// What is not there is not a finding, and an installed library needs no compiler.
func TestAbsent(t *testing.T) {
	h := healthy()
	root := h.Root.(fstest.MapFS)
	for name := range root {
		if strings.HasPrefix(name, "sys/") || strings.HasPrefix(name, "proc/sys/net") {
			delete(root, name)
		}
	}
	h.Library = func() string { return "/opt/exnet/libexnds.so" }
	h.LookPath = func(string) (string, error) { return "", errors.New("no") }
	fs := Examine(h)
	if Worst(fs) != OK {
		t.Errorf("%+v", fs)
	}
	for _, f := range fs {
		if strings.HasPrefix(f.Check, "net.") {
			t.Errorf("%+v", f)
		}
		if f.Check == "preload library" && f.Found != "/opt/exnet/libexnds.so" {
			t.Errorf("%+v", f)
		}
	}
}

func TestPrint(t *testing.T) {
	fs := []Finding{
		{Check: "kernel", Verdict: OK, Found: "6.18"},
		{Check: "/dev/net/tun", Verdict: Fail, Found: "no such device", Change: "modprobe tun " + strings.Repeat("and more ", 12), Why: "exn0 is one"},
	}
	var b bytes.Buffer
	if err := Print(&b, fs); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > width+1 {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
	for _, want := range []string{"ok    kernel        6.18\n", "FAIL  /dev/net/tun  no such device\n", "\n/dev/net/tun (FAIL)\n  change: modprobe tun and", "  why:    exn0 is one\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if Worst(fs) != Fail {
		t.Error(Worst(fs))
	}
	j, err := json.Marshal(fs[1])
	if err != nil || !strings.Contains(string(j), `"verdict":"fail"`) {
		t.Errorf("%s, %v", j, err)
	}
}

// The machine of the test has what the tests of this project need, and the trials leave
// nothing behind.
func TestThis(t *testing.T) {
	h, err := This()
	if err != nil {
		t.Fatal(err)
	}
	netnstest.CheckFDs(t)
	for _, f := range Examine(h) {
		t.Logf("%+v", f)
		if f.Verdict == 0 {
			t.Errorf("%s: no verdict", f.Check)
		}
		if f.Verdict == Fail && (f.Check == "sealed memory" || f.Check == "kernel") {
			t.Errorf("%+v", f)
		}
	}
}

package directsockets_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
)

// muteEnv has the path of a child's broker, and the address to which it sends.
const muteEnv = "EXNET_DS_MUTE"

// mute has the kernel refuse this process sockets of AF_NETLINK, as systemd's
// RestrictAddressFamilies does.
func mute(t *testing.T) {
	t.Helper()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKET},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // its first argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.AF_NETLINK},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		t.Fatal(errno)
	}
}

// TestUDPMute: the statistics of a process that may not ask the kernel about sockets say that this
// is why its datagrams go by the kernel; nothing is announced, and no flow is offered.
func TestUDPMute(t *testing.T) {
	if path, to, child := strings.Cut(os.Getenv(muteEnv), " "); child {
		muteChild(t, path, to)
		return
	}
	cfg := directsockets.Config{Eager: true, Broker: startBroker(t)}
	echo := listenUDP(t, cfg, "udp4", "127.0.0.1:0")
	echoUDP(t, echo)
	cmd := exec.Command(os.Args[0], "-test.run=^TestUDPMute$", "-test.v")
	cmd.Env = append(os.Environ(), muteEnv+"="+brokerPath(t, cfg.Broker)+" "+echo.LocalAddr().String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "udp to "+echo.LocalAddr().String()+": shadow, no AF_NETLINK") {
		t.Errorf("%s", out)
	}
}

func muteChild(t *testing.T, path, to string) {
	broker, err := client.Dial(client.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	if err := broker.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	mute(t)
	addr, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	c := dialUDP(t, directsockets.Config{Broker: broker, Eager: true, Explain: true}, addr)
	for end := time.Now().Add(testWait); ; time.Sleep(time.Millisecond) {
		ask(t, c, []byte("hello"))
		budget := connstats.MaxEntries
		all := connstats.Read(broker.Stats().Fd(), connstats.MaxEntries, &budget)
		if len(all) == 1 && all[0].Why == connstats.WhyNoDiag {
			t.Logf("udp to %v: %v, %v", all[0].Remote, all[0].Mode, all[0].Why)
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", all)
		}
	}
	if broker.Receiver(c.LocalAddr().(*net.UDPAddr).AddrPort().Port()) {
		t.Error("the socket takes flows")
	}
}

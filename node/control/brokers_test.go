package control

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker"
)

// A broker that ends before it has answered is left out, whether it had accepted or not.
func TestBrokerEnding(t *testing.T) {
	for _, accepts := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "1"+BrokerSuffix)
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan error, 1)
		go func() {
			_, err := askBroker(path, nil, replyTime)
			asked <- err
		}()
		if accepts {
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		ln.Close()
		if err := <-asked; !ending(err) {
			t.Errorf("accepted %v: %v", accepts, err)
		}
	}
}

// So it is of one that is asked something.
func TestBrokerEndingAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1"+directSuffix)
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			conn.Close()
		}
	}()
	for range 100 { // it may end before it is asked, or after
		if _, err := askBroker(path, &Request{Op: OpDirect}, replyTime); !ending(err) {
			t.Fatal(err)
		}
	}
}

// childEnv has TestTellerOfContainers be a process that asks at that path.
const childEnv = "EXNET_ASK"

// Root of a container has the directory of the brokers mounted. It is told nothing, and switches
// nothing off.
func TestTellerOfContainers(t *testing.T) {
	if path := os.Getenv(childEnv); path != "" {
		if _, err := askBroker(path, &Request{Op: OpDirect}, replyTime); !ending(err) && err != nil {
			t.Fatal(err)
		} else if err == nil {
			os.Exit(answered)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), agentDirect)
	teller, err := newTeller(path, answerDirect(new(broker.Switch), func() (none broker.Returned) { return none }, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { teller.Close() })
	for flags, want := range map[uintptr]int{
		0:                 answered,
		unix.CLONE_NEWNS:  answered, // the host's root, where the agent has a mount namespace
		unix.CLONE_NEWPID: 0,
		unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC: 0,
	} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestTellerOfContainers$")
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Skip(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("flags %#x: exit status %d, want %d: %s", flags, got, want, out)
		}
	}
}

// answered is the exit status of a child that got an answer.
const answered = 7

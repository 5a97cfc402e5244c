package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/internal/netns/netnstest"
)

// An agent leaves a namespace to a node that begins there, and comes back when the node has ended.
func TestRootReserved(t *testing.T) {
	l := newLab(t)
	l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
	served := func() bool {
		_, err := os.Stat(filepath.Join(client.SystemDir, fmt.Sprint(l.b.Inode())+client.SocketSuffix))
		return err == nil
	}
	l.within(timeLimit, "the agent serves the namespace", served)
	if _, err := broker.New(broker.Config{In: l.b.Do}); !errors.Is(err, broker.ErrInUse) {
		t.Fatal(err)
	}
	r, err := broker.Reserve(l.b.Do)
	if err != nil {
		t.Fatal(err)
	}
	var s *broker.Server
	l.within(timeLimit, "the agent leaves", func() bool {
		s, err = broker.New(broker.Config{In: l.b.Do})
		return !errors.Is(err, broker.ErrInUse)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := (&agent{proc: procDir}).startBroker(l.b.Inode(), os.Getpid()); !errors.Is(err, broker.ErrInUse) {
		t.Errorf("while the node has no broker: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	l.within(timeLimit, "the agent is back", served)
}

// A process of another PID namespace, as root of a container is, keeps no agent out.
func TestRootReservedByContainer(t *testing.T) {
	netnstest.Require(t)
	n := netnstest.New(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=reserve ")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "reserved\n" || broker.Reserved(n.Inode()) {
		t.Errorf("%q, %v; it counts: %v", line, err, broker.Reserved(n.Inode()))
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// reserve is the program of TestRootReservedByContainer.
func reserve(string) error {
	r, err := broker.Reserve(nil)
	if err != nil {
		return err
	}
	fmt.Println("reserved")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return r.Close()
}

package exntun

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/cli"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// terminal is a pseudo terminal with exn-tun in its foreground, and what a user
// sees of it.
type terminal struct {
	t      *testing.T
	keys   *os.File // the terminal's other end
	screen buffer
	cmd    *exec.Cmd
	done   chan error
}

// newTerminal starts a program on a terminal of its own.
func newTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keys.Close() })
	number := 0
	raw, err := keys.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ioctlErr error
	if err := raw.Control(func(fd uintptr) {
		if ioctlErr = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); ioctlErr == nil {
			number, ioctlErr = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if ioctlErr == nil {
			ioctlErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100})
		}
	}); err != nil || ioctlErr != nil {
		t.Fatal(err, ioctlErr)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, keys: keys, cmd: cmd, done: make(chan error, 1)}
	go func() { term.done <- cmd.Wait() }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			if err != nil {
				return // EIO when the last program has closed the terminal
			}
			term.screen.Write(buf[:n])
		}
	}()
	return term
}

// sees waits until text is on the screen.
func (term *terminal) sees(text string) {
	term.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !strings.Contains(term.screen.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			term.cmd.Process.Kill()
			term.t.Fatalf("%q does not appear on the screen:\n%s", text, term.screen.String())
		}
	}
}

// types presses keys.
func (term *terminal) types(keys string) {
	term.t.Helper()
	if _, err := term.keys.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// ends waits for the program's exit status.
func (term *terminal) ends(status int) {
	term.t.Helper()
	select {
	case <-term.done:
	case <-time.After(3 * time.Minute):
		term.cmd.Process.Kill()
		<-term.done
		term.t.Errorf("it does not end:\n%s", term.screen.String())
	}
	if got := term.cmd.ProcessState.ExitCode(); got != status {
		term.t.Errorf("status %d, want %d:\n%s", got, status, term.screen.String())
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// onTerminal starts exn-tun on a terminal.
func onTerminal(t *testing.T, env string, args ...string) *terminal {
	t.Helper()
	cmd, _, _ := programCommand(args...)
	cmd.Env = append(cmd.Env, env)
	return newTerminal(t, cmd)
}

// TestRootTerminalShell: a shell has the terminal as if it had been started
// from it, and its prompt says where it is.
func TestRootTerminalShell(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	for _, shell := range []string{"/bin/bash", "/bin/sh"} {
		if _, err := os.Stat(shell); err != nil {
			continue
		}
		term := onTerminal(t, "SHELL="+shell, "demo", "--shell")
		term.sees("(exn node 1) ")
		term.types("echo on-node-$EXN_NODE\n")
		term.sees("on-node-1")
		arg := sleepArg()
		term.types("sleep " + arg + "\n")
		eventually(t, "the shell starts the program", func() bool { return alive(t, arg) })
		term.types(ctrlC)
		eventually(t, "Ctrl-C ends it", func() bool { return !alive(t, arg) })
		term.types("echo still-on-$EXN_NODE\n")
		term.sees("still-on-1")
		term.types("exit 4\n")
		term.ends(4)
	}
}

// TestRootTerminalCommand: Ctrl-C is the command's; one that goes on has the
// nodes as before.
func TestRootTerminalCommand(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	term := onTerminal(t, "", "demo", "--", "sh", "-c",
		"trap 'echo ca''ught' INT; echo rea''dy; read x; read x; ls /sys/class/net; exit 3")
	term.sees("ready")
	term.types(ctrlC)
	term.sees("caught")
	term.types("\n\n")
	term.ends(3)
	if screen := term.screen.String(); !strings.Contains(screen, "exn0") {
		t.Errorf("the nodes are gone:\n%s", screen)
	}

	term = onTerminal(t, "", "demo", "--", "sh", "-c", "echo rea''dy; exec sleep 60")
	term.sees("ready")
	term.types(ctrlC)
	term.ends(130)
}

// TestRootTerminalStop: Ctrl-Z stops exn-tun with the command, and a shell's fg
// lets both go on.
func TestRootTerminalStop(t *testing.T) {
	testlab.RequireTUN(t)
	need(t, "bash")
	leavesNothing(t)
	shell := exec.Command("bash", "--norc", "-i")
	shell.Env = append(os.Environ(), programEnv+"=1", `PS1=prompt \#> `) // keys that arrive while it changes modes may be lost
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	term := newTerminal(t, shell)
	term.sees("prompt 1> ")
	arg := sleepArg()
	term.types(exe + " demo -- sh -c \"echo rea''dy; read x; echo we''nt-on\" " + arg + "\n")
	term.sees("ready")
	term.types(ctrlZ)
	term.sees("Stopped")
	term.sees("prompt 2> ")
	eventually(t, "all processes stop: one that has still to would read what is typed", func() bool { return stopped(t, arg) })
	term.types("fg\n\n")
	term.sees("went-on")
	term.sees("sent ")
	term.sees("prompt 3> ")
	term.types("exit 0\n")
	term.ends(0)
}

// TestRootTerminalDemo: Ctrl-C ends the demonstration.
func TestRootTerminalDemo(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	leavesNothing(t)
	term := onTerminal(t, "", "demo", "--duration", "1m", "--runs", "1")
	term.sees("measuring stream")
	term.types(ctrlC)
	term.ends(cli.ExitFailure)
	term.sees("interrupted")
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	_ "exnet/internal/linux"

	"golang.org/x/sys/unix"
)

// Size of the terminal, in characters.
const (
	columns = 96 // the drawing, 777 pixels wide, fits the column of a README
	rows    = 50
)

// step is a line that was typed, and its output.
type step struct {
	typed string
	out   []output
}

// output is a line that the terminal shows at the end of a step.
type output struct {
	at   time.Duration // after the line was typed
	text string
}

// mark is what the reader writes to the terminal after the output of each line (ENQ).
const mark = 5

// reader runs the lines that it reads from descriptor 4, writes a mark after the output of each,
// and its status to 3.
const reader = `set -e
mount -t tmpfs none /run && mkdir -p /run/netns /run/lock
mount -t tmpfs -o mode=1777 none /dev/shm
ip link set lo up
set +e
while IFS= read -r line <&4; do
	eval "$line" </dev/null 3>&- 4<&-
	status=$?
	printf '\005'
	echo $status >&3
done`

// recordLines runs lines in a shell, one after the other. A line that fails ends it.
func recordLines(ctx context.Context, bin string, lines []string) ([]step, error) {
	master, slave, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer master.Close()
	done, doneIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer done.Close()
	linesOut, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "unshare", "-n", "-m", "-p", "-i", "--fork", "--kill-child", "--mount-proc", "bash", "-c", reader)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TERM=xterm", "LC_ALL=C.UTF-8")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = slave, slave, []*os.File{doneIn, linesOut}
	err = cmd.Start()
	slave.Close()
	doneIn.Close()
	linesOut.Close()
	if err != nil {
		input.Close()
		return nil, err
	}
	s := screen{marked: make(chan struct{}, 1)}
	var reading sync.WaitGroup
	reading.Go(func() { s.showOutput(master) })
	steps, err := typeAll(&s, input, bufio.NewReader(done), lines)
	input.Close()
	// The first process of the namespace ends when input does, and all others with it.
	_ = cmd.Wait()
	reading.Wait()
	return steps, err
}

// typeAll gives the lines to the shell, one after the other, and waits for the status of each.
func typeAll(s *screen, input io.Writer, done *bufio.Reader, lines []string) (steps []step, err error) {
	for _, line := range lines {
		command, hidden := strings.CutPrefix(line, "#!")
		s.clearScreen()
		if _, err := fmt.Fprintln(input, strings.TrimSpace(command)); err != nil {
			return nil, err
		}
		status, err := done.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: the shell has ended: %w\n%s", line, err, plainText(s.shownLines()))
		}
		<-s.marked // what the command has written is on the screen
		out := s.shownLines()
		if status != "0\n" {
			return nil, fmt.Errorf("%s: status %s%s", line, status, plainText(out))
		}
		if !hidden {
			steps = append(steps, step{line, out})
		}
	}
	return steps, nil
}

// plainText returns the text of lines.
func plainText(out []output) string {
	var b strings.Builder
	for _, o := range out {
		fmt.Fprintln(&b, o.text)
	}
	return b.String()
}

// openTerminal returns both ends of a terminal.
func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	n, numberErr := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = numberErr
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// Inherit is a client whose server is a child that has inherited the listener, and hands a
// connection on to a child of its own. It does what its standard input says, a word a line:
//
//	pass    the server hands the connection on; what comes next is the other one's to answer
//	stop    the server is stopped (SIGSTOP) with bytes under way, and goes on
//	kill    the server is killed while the client waits for it. It says "leak" when no goroutine
//	        of its connections is left, and ends
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	roleEnv  = "INHERIT_ROLE"
	testWait = 60 * time.Second
)

func main() {
	var err error
	switch os.Getenv(roleEnv) {
	case "server":
		err = server()
	case "inherit":
		err = inherit()
	default:
		err = client()
	}
	if err != nil {
		fmt.Println(os.Getenv(roleEnv), err)
		os.Exit(1)
	}
}

// child starts this program in another role, with a file as descriptor 3.
func child(role string, f *os.File) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = os.Stderr
	return cmd, cmd.Start()
}

// server echoes, with a sign in front, until a connection says PASS: then the program that inherits
// it does.
func server() error {
	ln, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			if echo(c, 's') {
				f, err := c.(*net.TCPConn).File()
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				if _, err := child("inherit", f); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				f.Close()
			}
			c.Close()
		}()
	}
}

func inherit() error {
	c, err := net.FileConn(os.NewFile(3, "connection"))
	if err != nil {
		return err
	}
	echo(c, 'h')
	return c.Close()
}

const size = 5000

// echo answers messages with a sign in place of the first byte; true: PASS has come.
func echo(c net.Conn, sign byte) (pass bool) {
	b := make([]byte, size)
	for {
		if _, err := io.ReadFull(c, b); err != nil {
			return false
		}
		if bytes.HasPrefix(b, []byte("PASS")) {
			return true
		}
		b[0] = sign
		if _, err := c.Write(b); err != nil {
			return false
		}
	}
}

// ask sends a message and checks the answer.
func ask(c net.Conn, n int, sign byte) error {
	b := bytes.Repeat([]byte{byte(n)}, size)
	if _, err := c.Write(b); err != nil {
		return err
	}
	return answer(c, n, sign)
}

func answer(c net.Conn, n int, sign byte) error {
	b := make([]byte, size)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if b[0] != sign || b[1] != byte(n) || b[size-1] != byte(n) {
		return fmt.Errorf("the answer begins %v, want %q", b[:2], sign)
	}
	return nil
}

func client() error {
	before := runtime.NumGoroutine()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	cmd, err := child("server", f)
	if err != nil {
		return err
	}
	addr := ln.Addr().String()
	f.Close()
	ln.Close()
	words := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			words <- in.Text()
		}
		close(words)
	}()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		if err := ask(c, n, 's'); err != nil {
			return err
		}
		select {
		case word, ok := <-words:
			if !ok {
				return nil
			}
			if c, err = obey(word, c, cmd, addr, before); err != nil {
				return fmt.Errorf("%s: %w", word, err)
			}
			fmt.Println(word)
		case <-time.After(time.Millisecond):
		}
	}
}

// obey does what a word says, and returns the connection to go on with.
func obey(word string, c net.Conn, cmd *exec.Cmd, addr string, before int) (net.Conn, error) {
	switch word {
	case "pass":
		if _, err := c.Write(append([]byte("PASS"), make([]byte, size-4)...)); err != nil {
			return c, err
		}
		for n := range 200 {
			if err := ask(c, n, 'h'); err != nil {
				return c, err
			}
		}
		c.Close()
		return net.Dial("tcp", addr)
	case "stop":
		return c, stop(c, cmd.Process)
	case "kill":
		time.AfterFunc(20*time.Millisecond, func() { cmd.Process.Kill() })
		c.SetReadDeadline(time.Now().Add(testWait))
		_, err := c.Read(make([]byte, 1))
		if err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
			return c, fmt.Errorf("a read says %v", err)
		}
		cmd.Wait()
		return c, leaks(c, before)
	}
	return c, errors.New("no such word")
}

// stop fills the connection to a stopped server, and reads it all when it goes on.
func stop(c net.Conn, server *os.Process) error {
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// It has stopped when its last thread has: until then it may answer.
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(server.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		return fmt.Errorf("waiting until it has stopped: %v, status %#x", err, status)
	}
	sent := make(chan error, 1)
	const messages = 1000
	go func() {
		for n := range messages {
			if _, err := c.Write(bytes.Repeat([]byte{byte(n)}, size)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var err error
	n := 0
	for ; err == nil; n++ {
		err = answer(c, n, 's')
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("a stopped server: %v", err)
	}
	if n > 1 {
		return errors.New("it answers although it is stopped")
	}
	c.SetReadDeadline(time.Time{})
	if err := server.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	for n := range messages {
		if err := answer(c, n, 's'); err != nil {
			return err
		}
	}
	return <-sent
}

// stopped waits until all threads of a process have stopped: a signal is on its way for a while.
func stopped(pid int) error {
	for end := time.Now().Add(testWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		runs := len(stats) == 0
		for _, name := range stats {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			_, state, _ := strings.Cut(string(text), ") ")
			runs = runs || !strings.HasPrefix(state, "T")
		}
		if !runs {
			return nil
		}
	}
	return errors.New("the server does not stop")
}

// leaks checks that nothing of the connections stays behind.
func leaks(c net.Conn, before int) error {
	c.Close()
	var stacks string
	for end := time.Now().Add(testWait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before+1 { // the reader of standard input
			fmt.Println("leak")
			os.Exit(0)
		}
		b := make([]byte, 1<<20)
		stacks = string(b[:runtime.Stack(b, true)])
	}
	return errors.New("goroutines are left:\n" + strings.TrimSpace(stacks))
}

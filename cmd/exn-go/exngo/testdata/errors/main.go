// Errors has both ends of a connection exchange words until its standard input says a byte. Then it
// closes one, and prints the errors of calls after that, all their fields: local is the address of
// who calls, remote that of its peer.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return err
	}
	accepted, err := ln.Accept()
	if err != nil {
		return err
	}
	a, b := dialed.(*net.TCPConn), accepted.(*net.TCPConn)
	told := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(os.Stdin, make([]byte, 1))
		told <- err
	}()
	for done := false; !done; {
		select {
		case err := <-told:
			if err != nil {
				return err
			}
			done = true
		default:
		}
		if err := exchange(a, b); err != nil {
			return err
		}
		if err := exchange(b, a); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	local, remote := a.LocalAddr(), a.RemoteAddr()
	raw, err := a.SyscallConn()
	if err != nil {
		return err
	}
	// A reader is blocked when the connection is closed: it and the peer read no reset.
	blocked := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 8))
		blocked <- err
	}()
	for range 2 {
		tell("close", a.Close(), local, remote)
	}
	tell("blocked", <-blocked, local, remote)
	_, err = b.Read(make([]byte, 8))
	tell("peer", err, b.LocalAddr(), b.RemoteAddr())
	tell("linger", a.SetLinger(0), local, remote)
	tell("delay", a.SetNoDelay(true), local, remote)
	tell("alive", a.SetKeepAlive(true), local, remote)
	tell("deadline", a.SetDeadline(time.Now()), local, remote)
	tell("read deadline", a.SetReadDeadline(time.Now()), local, remote)
	tell("write deadline", a.SetWriteDeadline(time.Now()), local, remote)
	tell("close read", a.CloseRead(), local, remote)
	tell("close write", a.CloseWrite(), local, remote)
	_, err = a.Read(make([]byte, 1))
	tell("read", err, local, remote)
	_, err = a.Write([]byte{1})
	tell("write", err, local, remote)
	_, err = a.File()
	tell("file", err, local, remote)
	_, err = a.SyscallConn()
	tell("syscall", err, local, remote)
	tell("raw control", raw.Control(func(uintptr) {}), local, remote)
	tell("raw read", raw.Read(func(uintptr) bool { return true }), local, remote)
	tell("raw write", raw.Write(func(uintptr) bool { return true }), local, remote)
	return nil
}

// exchange sends some bytes.
func exchange(from, to net.Conn) error {
	if _, err := from.Write([]byte("word")); err != nil {
		return err
	}
	_, err := io.ReadFull(to, make([]byte, 4))
	return err
}

func tell(what string, err error, local, remote net.Addr) {
	name := func(a net.Addr) string {
		switch {
		case a == nil:
			return "none"
		case a.String() == local.String():
			return "local"
		case a.String() == remote.String():
			return "remote"
		}
		return a.String()
	}
	var op *net.OpError
	if !errors.As(err, &op) {
		fmt.Printf("%s: %v\n", what, err)
		return
	}
	fmt.Printf("%s: %s %s, source %s, address %s: %v\n", what, op.Op, op.Net, name(op.Source), name(op.Addr), op.Err)
}

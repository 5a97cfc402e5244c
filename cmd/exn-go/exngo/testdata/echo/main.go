// Echo is a TCP server and its client. It says "done" after some messages, and goes on until
// its standard input ends.
package main

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	if err := Run(); err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// Run is main.
func Run() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err == nil {
			io.Copy(c, c) // the client notices
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, ok := c.(*net.TCPConn); !ok {
		return errors.New("not a TCPConn")
	}
	over := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin) // whatever ends it
		close(over)
	}()
	b := make([]byte, 1000)
	for i := 0; ; i++ {
		if i == 200 {
			os.Stdout.WriteString("done\n")
		}
		if i >= 200 {
			select {
			case <-over:
				return nil
			case <-time.After(time.Millisecond):
			}
		}
		for k := range b {
			b[k] = byte(i)
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		if b[0] != byte(i) || b[999] != byte(i) {
			return errors.New("other bytes came back")
		}
	}
}

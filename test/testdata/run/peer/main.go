// A server, and a client of it that makes a connection after another until it is ended, with
// checked data: peer server ADDR, peer client ADDR.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	if os.Args[1] == "client" {
		for n := 0; ; n++ {
			if err := exchange(os.Args[2], byte(n)); err != nil {
				fmt.Println("wrong:", err)
				os.Exit(1)
			}
		}
	}
	l, err := net.Listen("tcp", os.Args[2])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Println("wrong:", err)
			os.Exit(1)
		}
		go func() { io.Copy(c, c); c.Close() }()
	}
}

// exchange checks that a connection brings back what it is given.
func exchange(addr string, first byte) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	out, in := make([]byte, 5000), make([]byte, 5000)
	for n := range 500 {
		for i := range out {
			out[i] = first + byte(n+i)
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, in); err != nil || !bytes.Equal(in, out) {
			return fmt.Errorf("other data (%v)", err)
		}
	}
	return nil
}

// Oldgo sends bytes to itself, and has a call as the runtime of Go 1.19 has it.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// wait is runtime.epollwait of Go 1.19.
func wait()

func main() {
	if len(os.Args) > 1 {
		wait()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(c, c) // until the other end leaves
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	for n := range 1000 {
		b := []byte{byte(n)}
		if _, err := c.Write(b); err != nil {
			panic(err)
		}
		if _, err := io.ReadFull(c, b); err != nil || b[0] != byte(n) {
			panic(fmt.Sprint(b, err))
		}
	}
}

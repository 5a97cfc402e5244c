// Command many is a server, or clients that each make a number of requests of it over a connection
// of their own, and idle now and then.
//
//	many                              prints its address, and serves until its input ends
//	many ADDRESS CONNECTIONS REQUESTS prints "done", and keeps the connections until its input ends
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

const size = 64

func main() {
	var err error
	if len(os.Args) == 1 {
		err = serve()
	} else {
		err = request(os.Args[1], number(os.Args[2]), number(os.Args[3]))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	io.Copy(io.Discard, os.Stdin)
	served.Wait()
}

// served are connections of a server. It closes all before it ends, so that its system calls can be
// counted.
var served sync.WaitGroup

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func serve() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				panic(err)
			}
			served.Go(func() {
				defer c.Close()
				io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			})
		}
	}()
	return nil
}

// request returns when all requests are answered.
func request(address string, conns, requests int) error {
	var all sync.WaitGroup
	errs := make(chan error, conns)
	for i := range conns {
		all.Go(func() {
			if err := talk(address, i, requests); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		fmt.Println("done")
		return nil
	}
}

// talk makes requests over a connection, which stays.
func talk(address string, i, requests int) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	sent, got := make([]byte, size), make([]byte, size)
	for r := range requests {
		copy(sent, fmt.Sprintf("%d of %d", r, i))
		if _, err := c.Write(sent); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if string(sent) != string(got) {
			return fmt.Errorf("%q is answered by %q", sent, got)
		}
		if r%50 == i%50 {
			time.Sleep(time.Duration(r%7) * 100 * time.Microsecond)
		}
	}
	return nil
}

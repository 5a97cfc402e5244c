// Command gothreads makes connections to itself in threads that end with their goroutine, of which
// Go reuses what it knew: each checks what comes back.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	threads  = 64
	together = 8
	messages = 200
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go serve(l)
	var wrong atomic.Int32
	var all sync.WaitGroup
	turns := make(chan bool, together)
	for i := range threads {
		turns <- true
		all.Go(func() {
			runtime.LockOSThread() // and never unlocks it
			if err := ask(l.Addr().String(), byte(i)); err != nil {
				fmt.Println(err)
				wrong.Add(1)
			}
			if i%together == 0 {
				runtime.GC()
			}
			<-turns
		})
	}
	all.Wait()
	fmt.Println("wrong", wrong.Load())
}

func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			runtime.LockOSThread()
			defer c.Close()
			_, _ = io.Copy(c, struct{ io.Reader }{c}) // what is lost is noticed at the other end
		}()
	}
}

// ask has a server return messages, written by another thread than they are read by.
func ask(addr string, name byte) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for n := range messages {
		sent := bytes.Repeat([]byte{name, byte(n)}, 1+n)
		failed := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			failed <- err
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if err := <-failed; err != nil || !bytes.Equal(got, sent) {
			return fmt.Errorf("message %d of %d: %x, %v", n, name, got, err)
		}
	}
	return nil
}

// Command checked is checked.py's client in Go, with direct sockets: connections that stay, whose
// bytes go both ways at once, and new ones, to a server that sends back what comes. It checks each
// byte, until the file is there, and that each connection ends as it should.
//
//	checked ADDR CONNECTIONS FILE
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"exnet/directsockets"
)

// pause is how long a connection waits after each piece, so that many programs run at a time.
const pause = time.Millisecond

func main() {
	addr, file := os.Args[1], os.Args[3]
	stay, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	over := func() bool {
		_, err := os.Stat(file)
		return err == nil
	}
	var total, made atomic.Uint64
	talk := func(over func() bool) {
		n, err := echoed(addr, over)
		if err != nil {
			log.Fatalf("after %d bytes: %v", n, err)
		}
		total.Add(n)
		made.Add(1)
	}
	var all sync.WaitGroup
	for range stay {
		all.Go(func() { talk(over) })
	}
	for !over() {
		left := 100
		talk(func() bool { left--; return left < 0 })
	}
	all.Wait()
	fmt.Println("checked", total.Load(), "bytes of", made.Load(), "connections")
}

// echoed has a connection, and returns how many bytes came back. Words that count up go there until
// over says so, in pieces of many sizes.
func echoed(addr string, over func() bool) (n uint64, err error) {
	conn, err := directsockets.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var sent uint64
	wrote := make(chan error, 1)
	go func() {
		wrote <- func() error {
			for b, size := make([]byte, 0, 1<<16), uint64(8); !over(); size = (size*5 + 8) % (1 << 16) {
				b = b[:0]
				for end := sent + size/8*8; sent < end; sent += 8 {
					b = binary.LittleEndian.AppendUint64(b, sent)
				}
				if _, err := conn.Write(b); err != nil {
					return err
				}
				time.Sleep(pause)
			}
			return conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
	}()
	for b, have := make([]byte, 1<<16), 0; ; {
		m, err := conn.Read(b[have:])
		have += m
		at := 0
		for ; have-at >= 8; at += 8 {
			if got := binary.LittleEndian.Uint64(b[at:]); got != n {
				return n, fmt.Errorf("%d came back, want %d", got, n)
			}
			n += 8
		}
		have = copy(b, b[at:have])
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, err
		}
	}
	if err := <-wrote; err != nil {
		return n, err
	}
	if n != sent {
		return n, errors.New("the end came before " + strconv.FormatUint(sent, 10))
	}
	return n, nil
}

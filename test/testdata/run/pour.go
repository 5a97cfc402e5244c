// Command pour is checked.py's pour and drain in Go, with direct sockets: a client that only sends
// until a file is there, and hears at the end what has come.
//
//	pour ADDR FILE | pour drain ADDR
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"

	"exnet/directsockets"
)

func main() {
	if os.Args[1] == "drain" {
		l, err := directsockets.Listen("tcp", os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("listening")
		for {
			c, err := l.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go drain(c)
		}
	}
	n, err := pour(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatalf("after %d pieces: %v", n, err)
	}
	fmt.Println("checked", n)
}

func drain(c io.ReadWriteCloser) {
	defer c.Close()
	h := sha256.New()
	if n, err := io.Copy(h, struct{ io.Reader }{c}); err != nil {
		fmt.Printf("ended after %d bytes: %v\n", n, err)
		return
	}
	if _, err := c.Write(h.Sum(nil)); err != nil {
		fmt.Println(err)
	}
}

func pour(addr, stop string) (n uint64, err error) {
	c, err := new(directsockets.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	h := sha256.New()
	for ; ; n++ {
		if _, err := os.Stat(stop); err == nil {
			break
		}
		b := bytes.Repeat(binary.LittleEndian.AppendUint64(nil, n), 500)
		h.Write(b)
		if _, err := c.Write(b); err != nil {
			return n, err
		}
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return n, err
	}
	got, err := io.ReadAll(c)
	if err == nil && !bytes.Equal(got, h.Sum(nil)) {
		err = fmt.Errorf("other bytes have come")
	}
	return n, err
}

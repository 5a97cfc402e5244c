package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// maxSize bounds a request: it is what a server reads at a time.
const maxSize = 64 << 10

// asksCPU is what a client that sends nothing else wants: the server's CPU time, 8 bytes,
// nanoseconds.
var asksCPU = []byte("CPU?")

// serve sends back what comes.
func serve(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go echo(c)
	}
}

func echo(c net.Conn) {
	defer c.Close()
	buf := make([]byte, maxSize)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		answer := buf[:n]
		if bytes.Equal(answer, asksCPU) {
			answer = binary.LittleEndian.AppendUint64(nil, uint64(cpuTime()))
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// serveWeb does so over HTTP.
func serveWeb(address string) error {
	http.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxSize))
		if err != nil {
			return
		}
		_, _ = w.Write(body) // the client says so
	})
	http.HandleFunc("GET /cpu", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, int64(cpuTime()))
	})
	if err := http.ListenAndServe(address, nil); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

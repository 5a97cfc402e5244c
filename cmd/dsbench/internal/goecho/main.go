// Command goecho is a server and its clients that use nothing but package net: what "dsbench
// programs" measures of request and response between Go programs. It is built by exn-go:
//
//	exn-go build -o ~/bin/goecho ./cmd/dsbench/internal/goecho
//	goecho -listen ADDRESS
//	goecho [-c CONNECTIONS] [-t SECONDS] [-size BYTES] ADDRESS
//
// A client connects CONNECTIONS times, and sends the next request on a connection when it has the
// answer to the one before. It prints one line:
//
//	RATE requests/s, p50 US us, p99 US us, CPU US us a request
//
// The CPU time is that of the client and of the server, which tells its own when it is asked.
package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	_ "exnet/internal/linux"
)

func main() {
	if err := runCommand(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "goecho:", err)
		os.Exit(1)
	}
}

func runCommand(args []string) error {
	fs := flag.NewFlagSet("goecho", flag.ContinueOnError)
	listen := fs.String("listen", "", "`ADDRESS` to serve at")
	conns := fs.Int("c", 1, "`N` connections")
	seconds := fs.Int("t", 1, "`SECONDS` that a client takes")
	size := fs.Int("size", 64, "`BYTES` of a request and of its answer")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case *listen != "":
		return serveEcho(*listen)
	case fs.NArg() != 1 || *conns < 1 || *seconds < 1 || *size < 1 || *size > maxSize:
		return fmt.Errorf("give an address, 1 connection or more, 1 second or more, 1 to %d bytes", maxSize)
	}
	return client{address: fs.Arg(0), conns: *conns, size: *size, time: time.Duration(*seconds) * time.Second}.runClient(os.Stdout)
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil { // of the own process
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// maxSize bounds a request: it is what a server reads at a time.
const maxSize = 64 << 10

// asksCPU is what a client that sends nothing else wants: the server's CPU time, 8 bytes,
// nanoseconds.
var asksCPU = []byte("CPU?")

// serveEcho sends back what comes.
func serveEcho(address string) error {
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

// Command kept is kept.py in Go, with direct sockets, or with package net if its last argument is
// net: a client with keep-alive that moves data until its standard input ends, says "idle", then
// reads or writes until the connection fails, and says how. It sets TCP_USER_TIMEOUT to write when
// data has moved, before if that is early, and not if it is retries.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
)

func main() {
	addr, how, by := os.Args[1], os.Args[2], os.Args[3]
	dial := directsockets.DialContext
	if by == "net" {
		dial = new(net.Dialer).DialContext
	}
	c, err := dial(context.Background(), "tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	if how == "early" {
		limit(c)
	}
	b := make([]byte, 1000)
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	for !over.Load() {
		if _, err := c.Write(b); err != nil {
			log.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			log.Fatal(err)
		}
	}
	keep := net.KeepAliveConfig{Enable: how == "read", Idle: 2 * time.Second, Interval: time.Second, Count: 3}
	if err := c.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}).SetKeepAliveConfig(keep); err != nil {
		log.Fatal(err)
	}
	call := c.Write
	switch how {
	case "read":
		call = c.Read
	case "write":
		limit(c)
	}
	fmt.Println("idle")
	told := func() error {
		_, err := call(b[:1])
		return err
	}
	for err = told(); err == nil; err = told() {
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println(how, "was told:", name(err), name(told()))
}

// limit sets TCP_USER_TIMEOUT.
func limit(c net.Conn) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		log.Fatal(err)
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 3000) })
	if err = errors.Join(err, set); err != nil {
		log.Fatal(err)
	}
}

// name is what err is to a program that asks.
func name(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return unix.ErrnoName(no)
	}
	return fmt.Sprint(err)
}

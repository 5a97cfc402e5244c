package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

type client struct {
	address string
	conns   int
	size    int
	time    time.Duration
}

// warmUp is how long connections are used before the time counts: they become direct.
const warmUp = 300 * time.Millisecond

func (c client) runClient(w io.Writer) error {
	conns := make([]net.Conn, c.conns)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", c.address); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	if _, err := c.askAll(conns, warmUp); err != nil {
		return err
	}
	before, err := serverCPU(conns[0])
	if err != nil {
		return err
	}
	own, start := cpuTime(), time.Now()
	times, err := c.askAll(conns, c.time)
	if err != nil {
		return err
	}
	elapsed, own := time.Since(start), cpuTime()-own
	after, err := serverCPU(conns[0])
	if err != nil {
		return err
	}
	slices.Sort(times)
	n := len(times)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	_, err = fmt.Fprintf(w, "%.0f requests/s, p50 %.1f us, p99 %.1f us, CPU %.2f us a request\n", float64(n)/elapsed.Seconds(),
		us(times[n/2]), us(times[n*99/100]), us(own+after-before)/float64(n))
	return err
}

// askAll makes requests on all connections, and returns how long each took.
func (c client) askAll(conns []net.Conn, limit time.Duration) ([]time.Duration, error) {
	all := make([][]time.Duration, len(conns))
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	end := time.Now().Add(limit)
	for i, conn := range conns {
		wg.Go(func() {
			request, answer := bytes.Repeat([]byte{'x'}, c.size), make([]byte, c.size)
			for now := time.Now(); now.Before(end); {
				if errs[i] = roundTrip(conn, request, answer); errs[i] != nil {
					return
				}
				next := time.Now()
				all[i] = append(all[i], next.Sub(now))
				now = next
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(all...), nil
}

func roundTrip(c net.Conn, request, answer []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	_, err := io.ReadFull(c, answer)
	return err
}

// serverCPU asks for the server's CPU time.
func serverCPU(c net.Conn) (time.Duration, error) {
	var answer [8]byte
	err := roundTrip(c, asksCPU, answer[:])
	return time.Duration(binary.LittleEndian.Uint64(answer[:])), err
}

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// connection is one that requests are made on.
type connection interface {
	ask(request, answer []byte) error
	cpu() (time.Duration, error) // of the server
	Close() error
}

type client struct {
	address string
	conns   int
	size    int
	time    time.Duration
	dial    func(address string) (connection, error)
}

// warmUp is how long connections are used before the time counts: they become direct.
const warmUp = 300 * time.Millisecond

func (c client) run(w io.Writer) error {
	conns := make([]connection, c.conns)
	for i := range conns {
		var err error
		if conns[i], err = c.dial(c.address); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	if _, err := c.ask(conns, warmUp); err != nil {
		return err
	}
	before, err := conns[0].cpu()
	if err != nil {
		return err
	}
	own, start := cpuTime(), time.Now()
	times, err := c.ask(conns, c.time)
	if err != nil {
		return err
	}
	elapsed, own := time.Since(start), cpuTime()-own
	after, err := conns[0].cpu()
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

// ask makes requests on all connections, and returns how long each took.
func (c client) ask(conns []connection, limit time.Duration) ([]time.Duration, error) {
	all := make([][]time.Duration, len(conns))
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	end := time.Now().Add(limit)
	for i, conn := range conns {
		wg.Go(func() {
			request, answer := bytes.Repeat([]byte{'x'}, c.size), make([]byte, c.size)
			for now := time.Now(); now.Before(end); {
				if errs[i] = conn.ask(request, answer); errs[i] != nil {
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

// stream is a connection of bytes.
type stream struct{ net.Conn }

func dial(address string) (connection, error) {
	c, err := net.Dial("tcp", address)
	return stream{c}, err
}

func (s stream) ask(request, answer []byte) error {
	if _, err := s.Write(request); err != nil {
		return err
	}
	_, err := io.ReadFull(s, answer)
	return err
}

func (s stream) cpu() (time.Duration, error) {
	var answer [8]byte
	err := s.ask(asksCPU, answer[:])
	return time.Duration(binary.LittleEndian.Uint64(answer[:])), err
}

// web is a client of HTTP with one connection.
type web struct {
	client *http.Client
	url    string
}

func dialWeb(address string) (connection, error) {
	return web{&http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}, "http://" + address}, nil
}

func (w web) ask(request, answer []byte) error {
	r, err := w.client.Post(w.url+"/echo", "application/octet-stream", bytes.NewReader(request))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", r.Status)
	}
	if _, err := io.ReadFull(r.Body, answer); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body) // so that the connection is kept
	return err
}

func (w web) cpu() (time.Duration, error) {
	r, err := w.client.Get(w.url + "/cpu")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return time.Duration(n), err
}

func (w web) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets"
)

// countedDial returns a function that makes direct sockets, which are tallied when they are closed.
func (c *client) countedDial(kind string, peer int) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := directsockets.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &counted{Conn: conn, closed: sync.OnceFunc(func() {
			t := tally{Conns: 1}
			if t.InMemory, _ = direct(conn); t.InMemory > 0 {
				t.Direct = 1
			}
			c.add(kind, peer, t)
		})}, nil
	}
}

// counted is a connection that tells when it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// httpSession returns a function that makes some requests of a peer's web server, on connections
// that are kept for some time.
func (c *client) httpSession(tr *http.Transport, peer int) func(*rand.Rand) {
	web := &http.Client{Transport: tr, Timeout: stallTime}
	return func(rnd *rand.Rand) {
		for range 1 + rnd.IntN(10) {
			if !c.httpRequest(web, peer, rnd) {
				break
			}
		}
		if rnd.IntN(3) == 0 {
			tr.CloseIdleConnections()
		}
	}
}

// httpRequest makes a request; false: no more for now.
func (c *client) httpRequest(web *http.Client, peer int, rnd *rand.Rand) bool {
	r := record{Kind: "http", Phase: phaseConnect, Client: c.job.Node, Server: peer, Program: roleServer, Start: time.Now()}
	seed, up, down := rnd.Uint64(), logSize(rnd, 1<<20)-1, logSize(rnd, 1<<20)-1
	url := fmt.Sprintf("http://%v/%s", netip.AddrPortFrom(addr(peer, false), portHTTP), query(seed, up, down))
	method, body := http.MethodGet, io.Reader(nil)
	if rnd.IntN(2) == 0 {
		method, body = http.MethodPost, bytes.NewReader(newStream(seed).next(int(up)))
	}
	got, err := func() (int64, error) {
		req, err := http.NewRequest(method, url, body)
		if err != nil {
			return 0, err
		}
		answer, err := web.Do(req)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(answer.Body) // it is for the message
			return 0, fmt.Errorf("%w: %s: %s", errMismatch, answer.Status, text)
		}
		r.Phase = phaseData
		n, err := receive(answer.Body, newStream(^seed), down, rnd)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: a body, %d of %d bytes", errShort, n, down)
		}
		return n, err
	}()
	if err != nil {
		c.fail(r, err, down-got)
		return false
	}
	c.add(r.Kind, peer, tally{Messages: 1, Answers: 1, Bytes: uint64(got)})
	return true
}

// curl has curl under exn-run fetch something from a peer's web server.
func (c *client) curl(peer int, rnd *rand.Rand) {
	r := record{Kind: "curl", Phase: phaseConnect, Client: c.job.Node, Server: peer, Program: roleServer, Start: time.Now()}
	seed, down := rnd.Uint64(), logSize(rnd, 4<<20)-1
	url := fmt.Sprintf("http://%v/%s", netip.AddrPortFrom(addr(peer, false), portHTTP), query(seed, 0, down))
	ctx, cancel := context.WithTimeout(context.Background(), stallTime)
	defer cancel()
	argv := []string{c.job.Curl, "-gsS", "--fail-with-body", "--noproxy", "*", "--connect-timeout", "20", url}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"--"}, argv...)...)
	text, err := json.Marshal(job{Role: roleRun})
	if err != nil {
		panic(err) // it is plain data
	}
	var stdout, stderr bytes.Buffer
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	got, err2 := receive(bytes.NewReader(stdout.Bytes()), newStream(^seed), down, rnd)
	switch {
	case errors.Is(err2, errMismatch), errors.Is(err2, errLong):
		err = err2
	case err != nil:
		err = fmt.Errorf("%w: %s", err, stderr.Bytes())
		if !bytes.Contains(stderr.Bytes(), []byte("Failed to connect")) {
			r.Phase = phaseData
		}
	default:
		err = err2
	}
	if err != nil {
		r.heard = new(atomic.Bool)
		r.heard.Store(stdout.Len() > 0)
		c.fail(r, err, down-got)
		return
	}
	c.add(r.Kind, peer, tally{Conns: 1, Messages: 1, Answers: 1, Bytes: uint64(got)})
}

package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"exnet/directsockets"
)

// server serves all that clients of other nodes ask for.
type server struct {
	*reporter
	spoil *spoiler
}

// serve starts to serve.
func serve(r *reporter) error {
	s := &server{reporter: r, spoil: newSpoiler(r.job.Break)}
	for _, p := range []struct {
		port   int
		direct bool
		serve  func(net.Conn)
	}{{portPlain, false, s.conn}, {portDS, true, s.conn}, {portEcho, true, echo}} {
		l, err := s.listen(p.port, p.direct)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					panic(err) // nothing closes it
				}
				s.spoil.accepted()
				go p.serve(c)
			}
		}()
	}
	l, err := s.listen(portHTTP, true)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: http.HandlerFunc(s.http), ReadHeaderTimeout: stallTime, IdleTimeout: stallTime}
	go func() { panic(web.Serve(l)) }()
	u, err := net.ListenUDP("udp", &net.UDPAddr{Port: portUDP})
	if err != nil {
		return err
	}
	go echoDatagrams(u)
	return nil
}

// listen listens on all addresses of the node, those that come later included.
func (s *server) listen(port int, direct bool) (net.Listener, error) {
	address := fmt.Sprintf(":%d", port)
	if direct {
		return directsockets.Listen("tcp", address)
	}
	return net.Listen("tcp", address)
}

// conn serves a connection with a header.
func (s *server) conn(c net.Conn) {
	defer c.Close()
	kind := "tcp"
	if _, ok := c.(*directsockets.Conn); ok {
		kind = "ds"
	}
	r := record{Kind: kind, Phase: phaseData, Client: nodeOf(c.RemoteAddr()), Server: s.job.Node, Program: roleServer, By: roleServer, Start: time.Now()}
	p := timedConn{Conn: c}
	var b [headerLen]byte
	if n, err := io.ReadFull(p, b[:]); err != nil && n == 0 {
		return // the client has given up connecting
	} else if err != nil {
		r.wrong(err, 0) // no end of a stream: its client has not said how much there is
		s.send(event{Record: &r})
		return
	}
	var h header
	err := h.parse(b[:])
	var got, missing int64
	if err == nil && h.Mode == modeStream {
		got, err = s.stream(p, h)
		missing = h.Up - got
	} else if err == nil {
		got, err = s.requests(p, h)
		missing = 1
	}
	s.add(kind, r.Client, tally{Bytes: uint64(got)})
	if err == nil || h.Abort && !errors.Is(err, errMismatch) && !errors.Is(err, errLong) {
		return
	}
	r.wrong(err, missing)
	s.send(event{Record: &r})
}

// stream receives and sends a stream at the same time.
func (s *server) stream(p timedConn, h header) (got int64, err error) {
	sent := make(chan error, 1)
	go func() {
		_, err := send(p, newStream(^h.Seed), h.Down, rand.New(rand.NewPCG(h.Seed, 1)), nil)
		if err == nil {
			err = p.closeWrite()
		}
		sent <- err
	}()
	got, err = receive(p, newStream(h.Seed), h.Up, rand.New(rand.NewPCG(h.Seed, 2)))
	if err != nil {
		p.Close() // ends the other direction
	}
	if err2 := <-sent; err == nil {
		err = err2
	}
	return got, err
}

// requests answers requests until there are no more.
func (s *server) requests(p timedConn, h header) (got int64, err error) {
	in, out := newStream(h.Seed), newStream(^h.Seed)
	for number := uint32(1); ; number++ {
		var b [requestLen]byte
		if n, err := io.ReadFull(p, b[:]); err == io.EOF && n == 0 {
			return got, p.closeWrite()
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			return got, fmt.Errorf("%w: in the head of request %d", errShort, number)
		} else if err != nil {
			return got, err
		}
		var r request
		if err := r.parse(b[:], number); err != nil {
			return got, err
		}
		if err := receiveFull(p, in, int(r.Len)); err != nil {
			return got, err
		}
		got += int64(r.Len)
		time.Sleep(time.Duration(r.Delay) * time.Millisecond)
		if _, err := p.Write(out.next(int(r.Answer))); err != nil {
			return got, err
		}
	}
}

// echo returns what comes. The client tells whether it was right.
func echo(c net.Conn) {
	defer c.Close()
	p, buf := timedConn{Conn: c}, make([]byte, pieceLen)
	for {
		n, err := p.Read(buf)
		if n > 0 {
			if _, err := p.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// http receives a stream as the body of a request and sends one as the body of the answer.
func (s *server) http(w http.ResponseWriter, req *http.Request) {
	seed, up, down, err := parseQuery(req.URL.Query())
	if err == nil && req.Method == http.MethodPost {
		var body bytes.Buffer
		if _, err = io.Copy(&body, req.Body); err != nil {
			return // the client is gone, and knows why
		}
		if want := newStream(seed).next(int(up)); !bytes.Equal(body.Bytes(), want) {
			err = fmt.Errorf("%w: a body of %d bytes", errMismatch, body.Len())
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.add("http", nodeOf(remote(req)), tally{Bytes: uint64(up)})
	w.Header().Set("Content-Length", strconv.FormatInt(down, 10))
	_, _ = send(w, newStream(^seed), down, rand.New(rand.NewPCG(seed, 3)), nil) // the client counts
}

func remote(req *http.Request) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", req.RemoteAddr)
	if err != nil {
		return &net.UnixAddr{}
	}
	return a
}

func query(seed uint64, up, down int64) string {
	return fmt.Sprintf("?seed=%d&up=%d&down=%d", seed, up, down)
}

func parseQuery(q url.Values) (seed uint64, up, down int64, err error) {
	var errs [3]error
	seed, errs[0] = strconv.ParseUint(q.Get("seed"), 10, 64)
	up, errs[1] = strconv.ParseInt(q.Get("up"), 10, 64)
	down, errs[2] = strconv.ParseInt(q.Get("down"), 10, 64)
	if err = errors.Join(errs[:]...); err != nil || up > 1<<26 || down > 1<<26 {
		err = fmt.Errorf("%w: query %v", errMismatch, q)
	}
	return seed, up, down, err
}

// echoDatagrams returns what comes.
func echoDatagrams(u *net.UDPConn) {
	_ = u.SetReadBuffer(1 << 20) // or what the system allows
	buf := make([]byte, 1<<16)
	for {
		n, from, err := u.ReadFromUDPAddrPort(buf)
		if err != nil {
			continue // such as an ICMP error for what was sent
		}
		_, _ = u.WriteToUDPAddrPort(buf[:n], from) // a datagram may be lost
	}
}

// datagram is one of n bytes, at least 20, that shows whether it is whole.
func datagram(node int, number uint64, n int) []byte {
	b := make([]byte, max(n, 20))
	binary.LittleEndian.PutUint32(b, uint32(node))
	binary.LittleEndian.PutUint64(b[4:], number)
	binary.LittleEndian.PutUint64(b[12:], uint64(len(b)))
	copy(b[20:], newStream(number).next(len(b)-20))
	return b
}

// parseDatagram says who sent a datagram, and fails if it is not whole.
func parseDatagram(b []byte) (node int, number uint64, err error) {
	if len(b) >= 20 {
		node, number = int(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint64(b[4:])
		if bytes.Equal(b, datagram(node, number, len(b))) {
			return node, number, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: a datagram of %d bytes", errMismatch, len(b))
}

// dialFunc is net's DialContext.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"exnet/directsockets/broker/wire"
	"exnet/internal/ctxend"
	"exnet/internal/shm"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// Times between two attempts to find a broker: doubled each time until the last.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
	// steady is how long a connection must last not to count as one that keeps failing.
	steady = time.Second
	// betterTime is how often a client of a user's broker looks for root's.
	betterTime = time.Second
	// welcomeTime is how long a broker may take to answer HELLO.
	welcomeTime = 2 * time.Second
	// maxAsked is how many announcements may wait for the broker.
	maxAsked = 2 * wire.MaxListeners
)

// keepConnected keeps the Client connected until ctx ends.
func (c *Client) keepConnected(ctx context.Context) {
	defer close(c.done)
	retry := firstRetry
	for knocked := false; ; {
		w, in, err := c.connectBroker(ctx)
		if err == nil {
			began := time.Now()
			err = c.answerBroker(ctx, w, in)
			if time.Since(began) > steady {
				retry = firstRetry
			}
		}
		if ctx.Err() != nil {
			err = wire.ErrClosed
		}
		c.onDisconnected(err)
		if !knocked && c.cfg.Path == "" && os.Getenv(PathEnv) == "" {
			_ = knockAt(DoorPath) // or there is no agent
			knocked = true
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

// answerBroker answers the broker until the connection ends.
func (c *Client) answerBroker(ctx context.Context, w socketWay, in *rpc.Inbound) error {
	defer w.Close()
	defer ctxend.Do(ctx, w.Abort)()
	if c.better != "" {
		looking, stop := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Add(1)
		shm.Go(func() {
			defer watch.Done()
			c.awaitBetter(looking, c.better, w)
		})
		defer watch.Wait()
		defer stop()
	}
	for {
		b, fds, err := in.Next()
		lost := errors.Is(err, rpc.ErrNoDescriptors)
		if err != nil && !lost {
			fds.Close()
			return fmt.Errorf("%w: %w", ErrNoBroker, err)
		}
		var m wire.Message
		err = m.UnmarshalBinary(b)
		switch {
		case err != nil:
		case m.Version != w.version:
			err = fmt.Errorf("%w: %v of version %d, agreed was %d", wire.ErrRule, m.Type, m.Version, w.version)
		case lost && (m.Type == wire.Grant || m.Type == wire.Flow): // the client's side sees the end of its doorbell
			err = c.handleMessage(wire.Message{Type: wire.None, ID: m.ID}, nil)
		case len(fds) != m.Type.Descriptors():
			err = fmt.Errorf("%w: %v with %d descriptors", wire.ErrRule, m.Type, len(fds))
		default:
			err = c.handleMessage(m, fds)
		}
		fds.Close()
		if err != nil {
			c.cfg.Log.Warn("direct sockets: broker", "reason", err)
			return fmt.Errorf("%w: %w", ErrNoBroker, err)
		}
	}
}

// awaitBetter ends the connection to a user's broker when root's, which the other users
// of the namespace share, is at path.
func (c *Client) awaitBetter(ctx context.Context, path string, w socketWay) {
	for {
		select {
		case <-time.After(betterTime):
		case <-ctx.Done():
			return
		}
		if c.cfg.In(func() error { return checkReachable(place{path: path, root: true}) }) == nil {
			w.Abort()
			return
		}
	}
}

// checkReachable reports whether a broker that can be trusted is there.
func checkReachable(at place) error {
	conn, err := dialBroker(at)
	if err != nil {
		return err
	}
	return conn.Close()
}

// connectBroker finds a broker and greets it.
func (c *Client) connectBroker(ctx context.Context) (w socketWay, in *rpc.Inbound, err error) {
	var conn *net.UnixConn
	err = c.cfg.In(func() error {
		all := []place{{path: c.cfg.Path}}
		if c.cfg.Path == "" {
			var err error
			if all, err = brokerPlaces(); err != nil {
				return err
			}
		}
		var errs []error
		for _, at := range all {
			var err error
			if conn, err = dialBroker(at); err == nil {
				c.better = ""
				if root := betterPlace(all, at.path); root != nil {
					c.better = root.path
				}
				return nil
			}
			errs = append(errs, err)
			if at.tap && errors.Is(err, unix.EAGAIN) && at.ownSocket() { // it is there, and takes nobody at the moment
				break
			}
		}
		return fmt.Errorf("%w: %w", ErrNoBroker, errors.Join(errs...))
	})
	if err != nil {
		return w, nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	defer ctxend.Do(ctx, func() { conn.Close() })()
	out, err := rpc.NewOutbox(conn, maxAsked)
	if err != nil {
		return w, nil, err
	}
	w = socketWay{Outbox: out}
	if in, err = rpc.NewInbound(conn, wire.MaxLen, wire.MaxDescriptors); err != nil {
		return w, nil, err
	}
	page, welcome, err := c.exchangeHello(w, conn, in)
	if err != nil {
		return w, nil, fmt.Errorf("%w: %w", ErrNoBroker, err)
	}
	w.version = welcome.Version
	c.onConnected(w, page, welcome)
	return w, in, nil
}

// dialBroker connects to a socket whose owner can be trusted.
func dialBroker(at place) (*net.UnixConn, error) {
	if err := at.checkPlace(); err != nil {
		return nil, err
	}
	conn, err := net.DialUnix(Network, nil, &net.UnixAddr{Name: at.path, Net: Network}) // it does not wait
	if err != nil {
		return nil, err
	}
	if err := at.checkTrusted(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", at.path, err)
	}
	return conn, nil
}

// exchangeHello exchanges HELLO and WELCOME.
func (c *Client) exchangeHello(w socketWay, conn *net.UnixConn, in *rpc.Inbound) (page *wire.Page, welcome wire.Message, err error) {
	b, err := wire.Greeting(c.cfg.Program).AppendBinary(nil)
	if err != nil {
		return nil, welcome, err
	}
	fd := c.stats.Fd()
	if fd < 0 {
		return nil, welcome, wire.ErrClosed
	}
	posted := w.Post(b, fd)
	if posted != nil && !errors.Is(posted, unix.EPIPE) {
		return nil, welcome, posted
	}
	if err := conn.SetReadDeadline(time.Now().Add(welcomeTime)); err != nil {
		return nil, welcome, err
	}
	b, fds, err := in.Next()
	defer func() { fds.Close() }()
	if errors.Is(err, io.EOF) && posted == nil { // it has read HELLO, and hung up (SPEC 6)
		return nil, welcome, ErrVersion
	}
	if err != nil {
		return nil, welcome, err
	}
	if err := welcome.UnmarshalBinary(b); err != nil {
		return nil, welcome, err
	}
	if welcome.Type == wire.Refused && welcome.Reason == wire.TooMany {
		return nil, welcome, ErrFull
	}
	if posted != nil { // it has hung up before HELLO came
		return nil, welcome, posted
	}
	if welcome.Type != wire.Welcome || len(fds) != 1 {
		return nil, welcome, fmt.Errorf("%w: %v with %d descriptors instead of WELCOME", wire.ErrRule, welcome.Type, len(fds))
	}
	if page, err = wire.MapPage(fds[0]); err != nil {
		return nil, welcome, err
	}
	return page, welcome, conn.SetReadDeadline(time.Time{})
}

// socketWay is the way to a broker by its socket.
type socketWay struct {
	*rpc.Outbox
	version uint8 // of the messages, as WELCOME has it
}

func (w socketWay) Ask(m wire.Message, s Socket, queue bool, fds ...int) error {
	m.Version = w.version
	send := w.Offer
	if queue {
		send = w.Post
	}
	if m.Type != wire.Listen && m.Type != wire.Offer && m.Type != wire.Claim {
		b, err := m.AppendBinary(make([]byte, 0, wire.MaxLen))
		if err != nil {
			return err
		}
		return send(b, fds...)
	}
	if s.Conn == nil {
		return fmt.Errorf("%w: it asks for a proof of the socket", ErrNoBroker)
	}
	var proof int
	var err error
	ctlErr := s.Conn.Control(func(fd uintptr) {
		m.UDP = s.UDP
		if err = wire.Identify(&m, int(fd)); err == nil {
			if s.UDP && m.Type == wire.Offer {
				m.Client, m.Server = s.Local, s.Remote
			}
			proof, err = wire.OpenProof(int(fd))
		}
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return err
	}
	defer unix.Close(proof)
	b, err := m.AppendBinary(make([]byte, 0, wire.MaxLen))
	if err != nil {
		return err
	}
	var all [wire.MaxDescriptors]int
	all[0] = proof
	return send(b, all[:1+copy(all[1:], fds)]...)
}

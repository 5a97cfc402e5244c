package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"exnet/internal/ctxend"

	"golang.org/x/sys/unix"
)

// Times between two attempts to find a broker: doubled each time until the last.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 5 * time.Second
	// steady is how long a connection lasts to be none that fails again and again.
	steady = time.Second
	// welcomeTime is what a broker has to answer HELLO.
	welcomeTime = 2 * time.Second
	// maxAsked is how many announcements may wait for the broker.
	maxAsked = 2 * maxListeners
)

// run keeps the Client connected until ctx ends.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	retry := firstRetry
	for {
		w, in, err := c.connect(ctx)
		if err == nil {
			began := time.Now()
			err = c.serve(ctx, w, in)
			if time.Since(began) > steady {
				retry = firstRetry
			}
		}
		if ctx.Err() != nil {
			err = ErrClosed
		}
		c.disconnected(err)
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

// serve answers the broker until the connection ends.
func (c *Client) serve(ctx context.Context, w socketWay, in *inbound) error {
	defer w.close()
	defer ctxend.Do(ctx, w.abort)()
	for {
		b, fds, err := in.next()
		lost := errors.Is(err, errNoDescriptors)
		if err != nil && !lost {
			fds.close()
			return fmt.Errorf("%w: %w", ErrNoBroker, err)
		}
		var m Message
		err = m.UnmarshalBinary(b)
		switch {
		case err != nil:
		case lost && m.Type == Grant: // the client's side sees the end of its doorbell
			err = c.handle(Message{Type: None, ID: m.ID}, nil)
		case len(fds) != m.Type.Descriptors():
			err = fmt.Errorf("%w: %v with %d descriptors", ErrRule, m.Type, len(fds))
		default:
			err = c.handle(m, fds)
		}
		fds.close()
		if err != nil {
			c.cfg.Log.Warn("direct sockets: broker", "reason", err)
			return fmt.Errorf("%w: %w", ErrNoBroker, err)
		}
	}
}

// connect finds a broker and greets it.
func (c *Client) connect(ctx context.Context) (w socketWay, in *inbound, err error) {
	var conn *net.UnixConn
	err = c.cfg.In(func() error {
		all := []string{c.cfg.Path}
		if c.cfg.Path == "" {
			var err error
			if all, err = paths(); err != nil {
				return err
			}
		}
		var errs []error
		for _, path := range all {
			var err error
			if conn, err = dialBroker(ctx, path); err == nil {
				return nil
			}
			errs = append(errs, err)
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
	out, err := newOutbox(conn, maxAsked)
	if err != nil {
		return w, nil, err
	}
	w = socketWay{out}
	if in, err = newInbound(conn, maxLen); err != nil {
		return w, nil, err
	}
	page, node, err := c.greet(w, conn, in)
	if err != nil {
		return w, nil, fmt.Errorf("%w: %w", ErrNoBroker, err)
	}
	c.connected(w, page, node)
	return w, in, nil
}

// dialBroker connects to a socket whose owner can be trusted.
func dialBroker(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	got, err := d.DialContext(ctx, network, path)
	if err != nil {
		return nil, err
	}
	conn := got.(*net.UnixConn)
	raw, err := conn.SyscallConn()
	if err == nil {
		var cred *unix.Ucred
		var credErr error
		err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
		if err == nil {
			err = credErr
		}
		if err == nil && cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
			err = fmt.Errorf("%s: %w", path, errUntrusted)
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// greet exchanges HELLO and WELCOME.
func (c *Client) greet(w socketWay, conn *net.UnixConn, in *inbound) (page *Page, node uint16, err error) {
	b, err := Message{Type: Hello, ID: 1, Program: c.cfg.Program}.AppendBinary(nil)
	if err != nil {
		return nil, 0, err
	}
	fd := c.stats.seg.Fd()
	if fd < 0 {
		return nil, 0, ErrClosed
	}
	if err := w.post(b, fd); err != nil {
		return nil, 0, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(welcomeTime)); err != nil {
		return nil, 0, err
	}
	b, fds, err := in.next()
	defer func() { fds.close() }()
	if err != nil {
		return nil, 0, err
	}
	var m Message
	if err := m.UnmarshalBinary(b); err != nil {
		return nil, 0, err
	}
	if m.Type != Welcome || len(fds) != 1 {
		return nil, 0, fmt.Errorf("%w: %v with %d descriptors, WELCOME being due", ErrRule, m.Type, len(fds))
	}
	if page, err = mapPage(fds[0]); err != nil {
		return nil, 0, err
	}
	return page, m.Node, conn.SetReadDeadline(time.Time{})
}

// socketWay is the way to a broker by its socket.
type socketWay struct{ *outbox }

func (w socketWay) ask(m Message, s Socket, queue bool, fds ...int) error {
	send := w.offer
	if queue {
		send = w.post
	}
	if m.Type != Listen && m.Type != Offer && m.Type != Claim {
		b, err := m.AppendBinary(make([]byte, 0, maxLen))
		if err != nil {
			return err
		}
		return send(b, fds...)
	}
	if s.Conn == nil {
		return fmt.Errorf("%w: this one wants to see the socket", ErrNoBroker)
	}
	var proof int
	var err error
	ctlErr := s.Conn.Control(func(fd uintptr) {
		if err = m.show(int(fd)); err == nil {
			proof, err = openProof(int(fd))
		}
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return err
	}
	defer unix.Close(proof)
	b, err := m.AppendBinary(make([]byte, 0, maxLen))
	if err != nil {
		return err
	}
	var all [maxFDs]int
	all[0] = proof
	return send(b, all[:1+copy(all[1:], fds)]...)
}

// show completes a message with what identifies the socket fd.
func (m *Message) show(fd int) error {
	local, remote, ifindex, err := socketEnds(fd)
	if err != nil {
		return err
	}
	m.Interface = ifindex
	m.Client, m.Server = remote, local
	if m.Type == Offer {
		m.Client, m.Server = local, remote
	}
	return nil
}

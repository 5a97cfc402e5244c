package ofi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"exnet/fabric"
)

// Config is how Join finds the peer.
type Config struct {
	// Self and Peer are the nodes. There is no default.
	Self, Peer fabric.NodeID
	// Provider is libfabric's, such as tcp or verbs. Default: what the peer asks for, or
	// else the first that libfabric has for the address.
	Provider string
	// Helper is the helper's path. Default: Build's.
	Helper string
	// Timeout bounds Join. Default 10 s.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

func (c Config) withDefaults(ctx context.Context) (Config, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Timeout < 0 || c.Self == c.Peer {
		return c, fmt.Errorf("ofi: node %d with %d, timeout %v: %w", c.Self, c.Peer, c.Timeout, fabric.ErrInvalid)
	}
	if err := CheckProvider(c.Provider); err != nil {
		return c, err
	}
	if c.Helper == "" {
		var err error
		if c.Helper, err = Build(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

// CheckProvider reports what is wrong with the name of a provider. "" is good.
func CheckProvider(name string) error {
	if len(name) >= failureOff-providerOff || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_;") != "" {
		return fmt.Errorf("ofi: %q is not the name of a provider: %s: %w", name, use, fabric.ErrInvalid)
	}
	return refusal(name)
}

// Check reports whether links can be made by libfabric with this provider on this host: it
// has the helper built, and asks it.
func Check(ctx context.Context, provider string) error {
	cfg, err := Config{Peer: 1, Provider: provider}.withDefaults(ctx)
	if err != nil {
		return err
	}
	e, err := startEngine(cfg, true, netip.IPv6Unspecified())
	if err != nil {
		e, err = startEngine(cfg, true, netip.IPv4Unspecified()) // of a host without IPv6
	}
	if err != nil {
		return err
	}
	e.Close()
	return nil
}

// Join agrees with the peer, over a connection of which both know who is at the other end, on a
// connection by libfabric, and makes it. The peer calls Join, too. It borrows ctl, whose addresses
// say where the connection goes: to the port that the peer names, and nowhere else. Both have the
// same tokens then, which strangers that find the port do not.
func Join(ctx context.Context, ctl net.Conn, cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults(ctx)
	deadline := time.Now().Add(cfg.Timeout)
	if err := errors.Join(err, ctl.SetDeadline(deadline)); err != nil {
		return nil, err
	}
	mine, theirs := offer{node: cfg.Self, peer: cfg.Peer, provider: cfg.Provider}, offer{}
	if _, err := ctl.Write(mine.marshal()); err != nil {
		return nil, fmt.Errorf("%w: offer: %w", ErrMismatch, err)
	}
	b, err := hearMessage(ctl)
	if err != nil {
		return nil, err
	}
	theirs.unmarshal(&b)
	if theirs.node != cfg.Peer || theirs.peer != cfg.Self {
		return nil, fmt.Errorf("%w: the peer is node %d and wants %d", ErrMismatch, theirs.node, theirs.peer)
	}
	if cfg.Provider == "" {
		if err := CheckProvider(theirs.provider); err != nil {
			return nil, err
		}
		cfg.Provider = theirs.provider
	}
	if theirs.provider != "" && theirs.provider != cfg.Provider {
		return nil, fmt.Errorf("%w: the peer uses --link ofi:%s, this node ofi:%s", ErrMismatch, theirs.provider, cfg.Provider)
	}
	join := connect
	if cfg.Self < cfg.Peer {
		join = listen
	}
	e, err := join(ctl, cfg, deadline)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ctl.SetDeadline(time.Time{}), e.watchHelper()); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// startEngine starts a helper, and looks at its libfabric.
func startEngine(cfg Config, listens bool, at netip.Addr) (*Engine, error) {
	r, err := newRing()
	if err != nil {
		return nil, err
	}
	args := []string{"connect", at.String()}
	if listens {
		args[0] = "listen"
	}
	if cfg.Provider != "" {
		args = append(args, cfg.Provider)
	}
	e := &Engine{ring: r}
	if e.process, err = startHelper(cfg.Helper, r, args...); err != nil {
		r.close()
		return nil, err
	}
	if err = e.process.ctl.SetDeadline(time.Now().Add(cfg.Timeout)); err == nil {
		err = e.checkLibrary()
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// checkLibrary hears what libfabric the helper has, and refuses those that do not work.
func (e *Engine) checkLibrary() error {
	line, err := e.process.readLine("info")
	if err != nil {
		return err
	}
	var library, own uint32
	if _, err := fmt.Sscanf(line, "%d %s %d", &library, &e.info.provider, &own); err != nil {
		return fmt.Errorf("%w: its libfabric is %s", ErrHelper, plain(line))
	}
	e.info.library, e.info.version = version(library), version(own)
	e.info.provider = plain(e.info.provider)
	return e.info.refusal()
}

// listen is Join of the node with the lower ID.
func listen(ctl net.Conn, cfg Config, deadline time.Time) (e *Engine, err error) {
	var at place
	if e, err = opened(ctl.LocalAddr(), cfg, true, deadline); err == nil {
		at.provider = e.info.provider
		_, _ = rand.Read(at.tokens[0][:]) // it does not fail
		_, _ = rand.Read(at.tokens[1][:])
		at.port, err = e.listen(&at)
	}
	if err != nil {
		at = place{failure: err.Error()}
	}
	if _, werr := ctl.Write(at.marshal()); err == nil && werr != nil {
		err = fmt.Errorf("%w: %w", ErrMismatch, werr)
	}
	if err == nil {
		err = hearPlace(ctl, &at) // in time, or the peer has failed
	}
	if err == nil {
		_, err = e.process.readLine("up")
	}
	return e.orClose(err)
}

// connect is Join of the other node.
func connect(ctl net.Conn, cfg Config, deadline time.Time) (e *Engine, err error) {
	var at, answer place
	if err := hearPlace(ctl, &at); err != nil {
		return nil, err
	}
	switch {
	case cfg.Provider == "":
		cfg.Provider = at.provider
		err = CheckProvider(cfg.Provider)
	case at.provider != cfg.Provider:
		err = fmt.Errorf("%w: the peer has libfabric's provider %s, this node %s", ErrMismatch, at.provider, cfg.Provider)
	}
	if err == nil {
		e, err = opened(ctl.RemoteAddr(), cfg, false, deadline)
	}
	if err == nil {
		err = e.process.sendLine("go %d %x %x", at.port, at.tokens[0], at.tokens[1])
	}
	if err == nil {
		_, err = e.process.readLine("up")
	}
	if err != nil {
		answer.failure = err.Error()
	}
	if _, werr := ctl.Write(answer.marshal()); err == nil && werr != nil {
		err = fmt.Errorf("%w: %w", ErrMismatch, werr)
	}
	return e.orClose(err)
}

// orClose returns e, unless there is an error: then it is closed.
func (e *Engine) orClose(err error) (*Engine, error) {
	if err == nil {
		return e, nil
	}
	if e != nil {
		e.Close()
	}
	return nil, err
}

// opened opens a helper for the address of one end of a connection.
func opened(addr net.Addr, cfg Config, listens bool, deadline time.Time) (*Engine, error) {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return nil, fmt.Errorf("ofi: %v is not the address of a host: %w", addr, fabric.ErrInvalid)
	}
	e, err := startEngine(cfg, listens, at.Addr().Unmap())
	if err != nil {
		return nil, err
	}
	return e.orClose(e.process.ctl.SetDeadline(deadline))
}

// listen has the helper listen, and returns the port.
func (e *Engine) listen(at *place) (uint16, error) {
	if err := e.process.sendLine("go 0 %x %x", at.tokens[1], at.tokens[0]); err != nil {
		return 0, err
	}
	line, err := e.process.readLine("port")
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(line, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%w: it listens on port %s", ErrHelper, plain(line))
	}
	return uint16(port), nil
}

// hearPlace reads what the peer says, or why it has failed.
func hearPlace(ctl net.Conn, p *place) error {
	b, err := hearMessage(ctl)
	if err != nil {
		return err
	}
	p.unmarshal(&b)
	if p.failure != "" {
		return fmt.Errorf("%w: the peer says: %s", ErrProvider, p.failure)
	}
	return nil
}

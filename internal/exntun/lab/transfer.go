package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"exnet/internal/ctxend"
	"exnet/internal/hostnet"
)

const (
	TransferLen     = 64 << 20
	transferTimeout = time.Minute // over bad links, on a busy machine
)

// Transfer sends n random bytes over one TCP connection from a to b. b answers
// with the SHA-256 sum of what it got, which must be that of what was sent.
func Transfer(ctx context.Context, p Path, f Family, congestion string, n int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, transferTimeout, fmt.Errorf("not done within %v", transferTimeout))
	defer cancel()
	control := hostnet.ControlCongestion(congestion)

	var listener net.Listener
	if err := p.B.NS.Do(func() (err error) {
		lc := net.ListenConfig{Control: control}
		lc.SetMultipathTCP(false)
		listener, err = lc.Listen(ctx, "tcp", netip.AddrPortFrom(p.B.Addrs[f], 0).String())
		return err
	}); err != nil {
		return err
	}
	defer listener.Close()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer ctxend.Do(ctx, func() { listener.Close() })()
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		defer ctxend.Do(ctx, func() { conn.Close() })()
		return answerSum(conn)
	})
	group.Go(func() error {
		var conn net.Conn
		if err := p.A.NS.Do(func() (err error) {
			d := net.Dialer{Control: control}
			conn, err = d.DialContext(ctx, "tcp", listener.Addr().String())
			return err
		}); err != nil {
			return err
		}
		defer conn.Close()
		defer ctxend.Do(ctx, func() { conn.Close() })()
		return sendForSum(conn.(*net.TCPConn), n)
	})
	err := group.Wait()
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// answerSum reads to the end and answers with the sum.
func answerSum(conn io.ReadWriter) error {
	h := sha256.New()
	if _, err := io.Copy(h, conn); err != nil {
		return err
	}
	_, err := conn.Write(h.Sum(nil))
	return err
}

// halfCloser is what a *net.TCPConn can do beyond reading and writing.
type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// sendForSum sends n random bytes and compares the sums.
func sendForSum(conn halfCloser, n int64) error {
	h := sha256.New()
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	random := io.LimitReader(rand.NewChaCha8(seed), n)
	if _, err := io.CopyBuffer(io.MultiWriter(conn, h), onlyReader{random}, make([]byte, 128<<10)); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, sha256.Size))
	if err != nil {
		return err
	}
	if want := h.Sum(nil); string(answer) != string(want) {
		return fmt.Errorf("received data with SHA-256 sum %x, sent %x", answer, want)
	}
	return nil
}

// onlyReader hides all but Read, so that io.CopyBuffer uses its buffer.
type onlyReader struct{ io.Reader }

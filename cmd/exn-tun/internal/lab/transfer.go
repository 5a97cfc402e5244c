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
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"exnet/internal/ctxend"
	"exnet/node/hostnet"
)

const (
	// TransferLen is how much the demonstration sends, in bytes.
	TransferLen = 64 << 20
	// transferStall is the longest time without new data. The whole transfer has no limit: over
	// bad links and on a busy machine it is slow, not broken.
	transferStall = time.Minute
)

// Transfer sends n random bytes over one TCP connection from a to b. b answers with the SHA-256
// sum of what it received, and a compares the sum with its own. Transfer fails if nothing
// arrives for transferStall.
func Transfer(ctx context.Context, p Path, f Family, congestion string, n int64) error {
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
		return answerSum(stallReader{conn, transferStall})
	})
	group.Go(func() error {
		var conn net.Conn
		if err := p.A.NS.Do(func() (err error) {
			d := net.Dialer{Control: control, Timeout: transferStall}
			conn, err = d.DialContext(ctx, "tcp", listener.Addr().String())
			return err
		}); err != nil {
			return err
		}
		defer conn.Close()
		defer ctxend.Do(ctx, func() { conn.Close() })()
		return sendForSum(conn.(*net.TCPConn), n)
	})
	return group.Wait()
}

// stallReader is a connection whose Read fails when nothing arrives for limit.
type stallReader struct {
	net.Conn
	limit time.Duration
}

func (r stallReader) Read(b []byte) (int, error) {
	if err := r.SetReadDeadline(time.Now().Add(r.limit)); err != nil {
		return 0, err
	}
	n, err := r.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nothing arrived for %v", r.limit)
	}
	return n, err
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

// halfCloser is a connection that can end its sending direction alone, such as a *net.TCPConn.
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

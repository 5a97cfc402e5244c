package control

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"exnet/directsockets/broker"
	"exnet/internal/ctxend"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// Teller answers root and this user at a socket of its own. Containers have the directory of the
// brokers mounted, and root of most has root's user ID: a process of another PID namespace gets no
// answer.
type Teller struct {
	ln   *net.UnixListener
	stop context.CancelFunc // ends the connections
	done chan struct{}      // closed when serveClients has ended
}

// Times of a teller: how long who asks may take, and its pause where accepting fails.
const (
	tellTimeout = 5 * time.Second
	tellPause   = 100 * time.Millisecond
)

// maxTellers is how many connections of one user a Teller has at once.
const maxTellers = 32

// NewTeller begins to tell of the connections of s, a broker that belongs to no node, for Brokers,
// at a socket beside its own. whose names who the broker is for. stays, if not nil, returns the
// programs there that could not be attached to.
func NewTeller(s *broker.Server, whose Whose, stays func() []Stay) (*Teller, error) {
	return newTeller(Beside(s.Path(), BrokerSuffix), func(conn *net.UnixConn) {
		all := SocketsOf(s, whose)
		if stays != nil {
			all.Stays = stays()
		}
		_ = json.NewEncoder(conn).Encode(Reply{Sockets: all}) // who asked may be gone
	})
}

// Beside is the path of another socket of the broker with this one.
func Beside(path, suffix string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + suffix
}

func newTeller(path string, answer func(*net.UnixConn)) (*Teller, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Teller{ln, stop, make(chan struct{})}
	go t.serveClients(ctx, answer)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Teller) serveClients(ctx context.Context, answer func(*net.UnixConn)) {
	defer close(t.done)
	var clients sync.WaitGroup
	defer clients.Wait()
	gate := rpc.NewGate(maxTellers)
	for conn := range rpc.Accept(ctx, t.ln, tellPause, func(error) {}) {
		leave, err := gate.Enter(conn)
		if err != nil {
			conn.Close()
			continue
		}
		clients.Go(func() {
			defer leave()
			defer conn.Close()
			if who, err := caller.Of(conn); err != nil || who.UID != 0 && int(who.UID) != os.Geteuid() || !caller.InPIDs(conn) {
				return
			}
			defer ctxend.Do(ctx, func() { conn.Close() })()
			_ = conn.SetDeadline(time.Now().Add(tellTimeout)) // it fails only of what is closed
			answer(conn)
		})
	}
}

// Close ends it, and the connections.
func (t *Teller) Close() error {
	err := t.ln.Close()
	t.stop()
	<-t.done
	return err
}

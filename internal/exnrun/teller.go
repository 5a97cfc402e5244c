package exnrun

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"time"

	"exnet/directsockets/broker"
	"exnet/internal/accept"
	"exnet/internal/control"
)

// teller tells root and this user of a broker's connections, for exn-tun status --sockets.
type teller struct {
	ln   *net.UnixListener
	done chan struct{} // closed when serve has ended
}

// Times of a teller: how long who asks may take to read, and its pause where accepting fails.
const (
	tellTimeout = 5 * time.Second
	tellPause   = 100 * time.Millisecond
)

// newTeller begins to tell of s at a socket.
func newTeller(path string, s *broker.Server) (*teller, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	t := &teller{ln, make(chan struct{})}
	go t.serve(s)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *teller) serve(s *broker.Server) {
	defer close(t.done)
	for conn := range accept.All(context.Background(), t.ln, tellPause, func(error) {}) {
		if uid := peerCred(conn).Uid; uid == 0 || int(uid) == os.Geteuid() {
			_ = conn.SetDeadline(time.Now().Add(tellTimeout)) // it fails only of what is closed
			_ = json.NewEncoder(conn).Encode(control.Reply{Sockets: &control.Sockets{
				Broker: s.Path(), Connections: s.Connections(), SetUp: s.SetUpTimes(),
			}}) // who asked may be gone
		}
		conn.Close()
	}
}

// close ends it.
func (t *teller) close() error {
	err := t.ln.Close()
	<-t.done
	return err
}

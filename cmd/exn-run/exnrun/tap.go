package exnrun

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/wire"
	"exnet/internal/tempdir"
	"exnet/node/rpc"
)

// tap sits between programs and their broker: it passes messages on in both directions, with their
// descriptors, and keeps the statistics that each program shows in its HELLO.
//
// What exn-run's program starts may be another user's by then (a web server's workers), so the
// socket is open to all users; but its name is a secret of the environment: nobody else may list
// its directory, and what /proc/net/unix says about it is the name that it had before. What comes
// through it is bounded, and not trusted.
//
// Concurrency: all methods may be called from many goroutines.
type tap struct {
	ln   *net.UnixListener
	dir  string
	name string // of the socket in it
	seen func(program string, pid int, statistics *os.File)

	wg sync.WaitGroup
	mu sync.Mutex
	// upstream: the broker's path. "": there is none, and every connection ends after its HELLO.
	upstream string // +checklocks:mu
	// conns: nil: closed.
	conns map[*net.UnixConn]bool // +checklocks:mu
	// fresh: connections whose first message has not been read.
	fresh int // +checklocks:mu
}

// Of a message that goes through.
const (
	maxMessage     = 1 << 10
	maxDescriptors = 8
)

// maxClients is how many programs may be connected at the same time; those beyond
// find no broker.
const maxClients = 4096

// newTap begins to serve. It calls seen, from many goroutines, with the name and
// the statistics of each program, and its process ID; the file is the callee's.
func newTap(upstream string, seen func(string, int, *os.File)) (*tap, error) {
	dir, err := tempdir.New("exn-run")
	if err != nil {
		return nil, err
	}
	var secret [16]byte
	if _, err := unix.Getrandom(secret[:], 0); err != nil {
		return nil, errors.Join(err, tempdir.Remove(dir))
	}
	t := &tap{dir: dir, name: hex.EncodeToString(secret[:]), upstream: upstream, seen: seen, conns: make(map[*net.UnixConn]bool)}
	bound := filepath.Join(dir, "tap")
	t.ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: bound, Net: "unixpacket"})
	if err == nil {
		err = os.Rename(bound, t.path())
	}
	if err == nil {
		// Also what the program runs as another user may say what it does.
		err = errors.Join(os.Chmod(dir, 0o711), os.Chmod(t.path(), 0o666))
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.wg.Go(t.acceptConns)
	return t, nil
}

// path is where the library finds the tap.
func (t *tap) path() string { return filepath.Join(t.dir, t.name) }

// waitSeen waits, not for long, until it has seen what every program has shown that
// had connected when waitSeen was called, also of those that have ended since.
func (t *tap) waitSeen() {
	// Connections are accepted in their order: after this one, all are.
	if c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: t.path(), Net: "unixpacket"}); err == nil {
		defer c.Close()
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(settleTime))
		_, _ = c.Read(make([]byte, 1)) // its end
	}
	for end := time.Now().Add(settleTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		t.mu.Lock()
		fresh := t.fresh
		t.mu.Unlock()
		if fresh == 0 {
			return
		}
	}
}

// settleTime bounds the wait for a program that has connected and says nothing.
const settleTime = 300 * time.Millisecond

// preferRoot has all programs use root's broker once it is there, in place of their user's. It
// is called on a thread in their network namespace.
func (t *tap) preferRoot() {
	t.mu.Lock()
	path := t.upstream
	t.mu.Unlock()
	if path == "" {
		return
	}
	if path = client.Better(path); path == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.upstream = path
	for c := range t.conns {
		c.Close() // the programs connect again
	}
}

// close ends all connections and waits until seen will not be called any more.
func (t *tap) close() error {
	var err error
	if t.ln != nil {
		err = t.ln.Close()
	}
	t.mu.Lock()
	for c := range t.conns {
		c.Close()
	}
	t.conns = nil
	t.mu.Unlock()
	t.wg.Wait()
	return errors.Join(err, tempdir.Remove(t.dir))
}

func (t *tap) acceptConns() {
	for c := range rpc.Accept(context.Background(), t.ln, acceptPause, func(error) {}) {
		t.addUnread(1)
		t.wg.Go(func() { t.relayClient(c) })
	}
}

// addUnread adds to the connections whose first message has not been read.
func (t *tap) addUnread(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh += n
}

// trackConn has close end c, unless that was called before or there are too many.
func (t *tap) trackConn(c *net.UnixConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil || len(t.conns) >= 2*maxClients { // each has one to the broker
		return false
	}
	t.conns[c] = true
	return true
}

func (t *tap) endConn(c *net.UnixConn) {
	c.Close()
	t.mu.Lock()
	delete(t.conns, c)
	t.mu.Unlock()
}

// relayClient passes on the messages of one program until either side ends.
func (t *tap) relayClient(c *net.UnixConn) {
	firstRead := sync.OnceFunc(func() { t.addUnread(-1) })
	defer firstRead()
	if !t.trackConn(c) {
		c.Close()
		return
	}
	defer t.endConn(c)
	said, err := rpc.NewInbound(c, maxMessage, maxDescriptors)
	if err != nil {
		return
	}
	var up *net.UnixConn
	t.mu.Lock()
	upstream := t.upstream
	t.mu.Unlock()
	if upstream != "" {
		var err error
		if up, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: upstream, Net: "unixpacket"}); err == nil && !t.trackConn(up) {
			up.Close()
			return
		}
	}
	if up == nil {
		_ = t.passMessage(said, c, nil) // its HELLO
		tellNoBroker(c)
		return
	}
	defer t.endConn(up)
	answers, err := rpc.NewInbound(up, maxMessage, maxDescriptors)
	if err != nil {
		return
	}
	passed := t.passMessage(said, c, up)
	if passed != nil && !errors.Is(passed, unix.EPIPE) { // else the broker may have said why it hung up
		tellNoBroker(c)
		return
	}
	firstRead()
	t.wg.Go(func() {
		var err error
		for err == nil {
			err = t.passMessage(answers, up, c)
		}
		if passed != nil || !errors.Is(err, io.EOF) {
			tellNoBroker(c)
		}
		c.Close()
	})
	for t.passMessage(said, c, up) == nil {
	}
}

// tellNoBroker tells a program that there is no broker. A mere end would say that there is one, of
// another version.
func tellNoBroker(c *net.UnixConn) {
	if b, err := (wire.Message{Type: wire.Refused, ID: 1, Reason: wire.Unreachable}).AppendBinary(nil); err == nil {
		_, _ = c.Write(b) // it may be gone
	}
}

// passMessage passes on one message that in receives of from; to may be nil.
func (t *tap) passMessage(in *rpc.Inbound, from, to *net.UnixConn) error {
	b, fds, err := in.Next()
	defer func() { fds.Close() }()
	if err != nil {
		return err
	}
	if b[0] == byte(wire.Hello) && len(fds) == 1 {
		if fd, err := rpc.Dup(fds[0]); err == nil {
			program, _, _ := strings.Cut(string(b[min(len(b), wire.HeaderLen):]), "\x00")
			t.seen(printableName(program), int(peerCred(from).Pid), os.NewFile(uintptr(fd), "statistics"))
		}
	}
	if to == nil {
		return nil
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = to.WriteMsgUnix(b, rights, nil)
	return err
}

// printableName keeps a name that anybody may have given from upsetting a terminal.
func printableName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}

// peerCred returns the process that connected, and its user; zero: unknown.
func peerCred(c *net.UnixConn) (cred unix.Ucred) {
	raw, err := c.SyscallConn()
	if err != nil {
		return cred
	}
	if err := raw.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			cred = *got
		}
	}); err != nil {
		return unix.Ucred{}
	}
	return cred
}

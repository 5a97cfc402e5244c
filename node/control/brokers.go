package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/node/rpc/caller"
)

// BrokerSuffix follows the name of the socket of a broker that exn-run or an agent started, and
// makes the name of its control socket. A client that connects to that gets a Reply with Sockets.
const BrokerSuffix = ".ctl"

// maxTold bounds the length of a broker's Reply, in bytes.
const maxTold = 64 << 20

// Brokers asks the brokers of root and of this user that belong to no node: those that exn-run or
// an agent has started. It leaves out brokers that are just ending, and those that this user may
// not ask.
func Brokers() ([]*Sockets, error) {
	all := []*Sockets{}
	err := askBrokers(BrokerSuffix, nil, replyTime, func(_ string, r Reply) bool {
		all = append(all, r.Sockets)
		return r.Sockets != nil
	})
	return all, err
}

// errEmpty says that a broker's Reply has not what was asked for.
var errEmpty = errors.New("it returned nothing of what was asked for")

// brokerSockets are the sockets with this suffix in the directories of brokers that this user may
// trust.
func brokerSockets(suffix string) (all []string, err error) {
	for _, dir := range slices.Compact([]string{client.SystemDir, client.UserDir()}) {
		if client.CheckDir(filepath.Dir(dir)) != nil || client.CheckDir(dir) != nil {
			continue // it is not there, or anybody may have put there what is in it
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		if err != nil {
			return nil, err
		}
		all = append(all, paths...)
	}
	return all, nil
}

// askBrokers asks at the sockets with this suffix, as Brokers does. req nil: who connects is told
// without asking. Each may take so long. take takes what came from a path's; false: it has not what
// was asked for.
func askBrokers(suffix string, req *Request, limit time.Duration, take func(path string, r Reply) bool) error {
	paths, err := brokerSockets(suffix)
	if err != nil {
		return err
	}
	for _, path := range paths {
		r, err := askBroker(path, req, limit)
		if passedOver(err) {
			continue
		}
		if err == nil && !take(path, r) {
			err = errEmpty
		}
		if err != nil {
			return fmt.Errorf("broker %s: %w", path, err)
		}
	}
	return nil
}

// passedOver reports whether an error is that of a broker that is left out: it is just ending, or
// this user may not ask it.
func passedOver(err error) bool { return errors.Is(err, fs.ErrPermission) || ending(err) }

// ending reports whether an error is that of a broker that is just ending: its socket is gone, or
// nobody accepts there any more, or it did not accept, or has written a part of its answer.
func ending(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func askBroker(path string, req *Request, limit time.Duration) (Reply, error) {
	conn, r, err := callBroker(path, req, limit)
	if err == nil {
		conn.Close()
	}
	return r, err
}

// callBroker is askBroker, and keeps the connection.
func callBroker(path string, req *Request, limit time.Duration) (conn *net.UnixConn, r Reply, err error) {
	if conn, err = dialBroker(path); err != nil {
		return nil, r, err
	}
	if r, err = askOn(conn, req, limit); err != nil {
		conn.Close()
		return nil, r, err
	}
	return conn, r, nil
}

// dialBroker connects to a socket of a process that this user may trust.
func dialBroker(path string) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := caller.Trusted(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// askOn asks by a connection, nil: nothing, and returns the Reply. The connection ends after limit.
func askOn(conn *net.UnixConn, req *Request, limit time.Duration) (r Reply, err error) {
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return r, err
	}
	if req != nil {
		if err := json.NewEncoder(conn).Encode(req); err != nil {
			return r, err
		}
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxTold)).Decode(&r); err != nil {
		return r, err
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

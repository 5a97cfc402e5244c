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
	for _, dir := range slices.Compact([]string{client.SystemDir, client.UserDir()}) {
		if client.CheckDir(filepath.Dir(dir)) != nil || client.CheckDir(dir) != nil {
			continue // it is not there, or anybody may have put there what is in it
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*"+BrokerSuffix))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			s, err := askBroker(path)
			if errors.Is(err, fs.ErrPermission) || ending(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("broker %s: %w", path, err)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// ending reports whether an error is that of a broker that is just ending: its socket is gone, or
// nobody accepts there any more, or what was connected there meanwhile was not accepted.
func ending(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, io.EOF)
}

func askBroker(path string) (*Sockets, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := caller.Trusted(conn); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(replyTime)); err != nil {
		return nil, err
	}
	var r Reply
	if err := json.NewDecoder(io.LimitReader(conn, maxTold)).Decode(&r); err != nil {
		return nil, err
	}
	if r.Sockets == nil {
		return nil, errors.New("it returned no sockets")
	}
	return r.Sockets, nil
}

package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/node/rpc/caller"
)

// endTime is how long a broker may take to end.
const endTime = time.Second

// EndBroker ends the broker that exn-run has started as root in the network namespace with this
// inode, so that an agent can serve that namespace. It returns when the broker is gone. The
// programs there connect to the next broker, as after the end of any; what is direct stays direct.
//
// An error that wraps fs.ErrNotExist says that there is no such broker. A broker of another PID
// namespace, as a container's is, gives an error, and so does one with rules of exn-tun direct, as
// the next broker would not have them.
func EndBroker(inode uint64) error {
	conn, err := dialBroker(filepath.Join(client.SystemDir, strconv.FormatUint(inode, 10)+directSuffix))
	if err != nil {
		return err
	}
	defer conn.Close()
	if !caller.InPIDs(conn) { // it might never answer
		return errors.New("control: a process of another PID namespace has the broker's socket")
	}
	if _, err := askOn(conn, &Request{Op: OpStop}, endTime); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn) // until its end
	return err
}

// errRuled says that a broker has rules that the next one would not have.
var errRuled = errors.New("exn-run's broker has rules: clear them with exn-tun direct on")

// answerStop answers a Request of OpStop: it gives stop the connection, which is to be closed when
// the broker is gone.
func answerStop(conn *net.UnixConn, sw *broker.Switch, stop func(asked *os.File)) error {
	if rules, held := sw.Rules(); len(rules)+len(held) > 0 {
		return errRuled
	}
	asked, err := conn.File()
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	_ = json.NewEncoder(conn).Encode(Reply{}) // who asked may be gone
	stop(asked)
	return nil
}

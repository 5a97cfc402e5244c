package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxLeftReply bounds the Reply to OpReplace.
const maxLeftReply = 4096

// Replace ends the daemon as Stop does, but for its interface, whose descriptor it returns. The
// interface stays as long as that is open. The Client cannot be used afterwards.
func (c *Client) Replace(ctx context.Context) (left *os.File, err error) {
	line, err := json.Marshal(Request{Op: OpReplace})
	if err != nil {
		return nil, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(replyTime)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	left, err = receiveLeft(c.conn.(*net.UnixConn))
	if err != nil {
		return nil, fmt.Errorf("node %d cannot be replaced: %w", c.Node.Node, err)
	}
	if err := c.awaitEnd(ctx); err != nil {
		return nil, errors.Join(err, left.Close())
	}
	return left, nil
}

// receiveLeft reads the Reply to OpReplace.
func receiveLeft(conn *net.UnixConn) (*os.File, error) {
	b, oob := make([]byte, maxLeftReply), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	var left *os.File
	if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) == 1 {
		if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil && len(fds) == 1 {
			left = os.NewFile(uintptr(fds[0]), "/dev/net/tun")
		}
	}
	var r Reply
	err = json.Unmarshal(b[:n], &r)
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	if err == nil && left == nil {
		err = errors.New("it returned no interface")
	}
	if err != nil && left != nil {
		err = errors.Join(err, left.Close())
	}
	if err != nil {
		return nil, err
	}
	return left, nil
}

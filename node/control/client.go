package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker"
	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/internal/ctxend"
)

// ErrNoNode says that there is no such daemon. Start one with exn-tun up.
var ErrNoNode = errors.New("no node is up")

// Client talks to a daemon.
//
// Concurrency: none.
type Client struct {
	Node emp.Description
	// Far is a node of another host, which Node asks in place of answering itself. Default:
	// none.
	Far *fabric.NodeID

	conn net.Conn
	in   *json.Decoder
}

// Nodes returns the nodes that are up in a fabric's directory.
func Nodes(dir string) ([]emp.Description, error) {
	nodes, err := emp.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nodes, err
}

// Clean removes what dead nodes left in a fabric's directory and returns their
// IDs.
func Clean(dir string) ([]fabric.NodeID, error) {
	broker.Sweep("")
	return emp.Clean(dir)
}

// Dial connects to the daemon of a node that Nodes returned.
func Dial(dir string, d emp.Description) (*Client, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: emp.File(dir, d.Node, Suffix), Net: "unix"})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: node %d is starting or ending", ErrNoNode, d.Node)
	}
	if err != nil {
		return nil, err
	}
	return &Client{Node: d, conn: conn, in: json.NewDecoder(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// replyTime bounds the wait for an answer.
const replyTime = 5 * time.Second

func (c *Client) roundTrip(req Request) (r Reply, err error) { return c.askWithin(req, replyTime) }

func (c *Client) askWithin(req Request, limit time.Duration) (r Reply, err error) {
	req.Node = c.Far
	line, err := json.Marshal(req)
	if err != nil {
		return r, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return r, err
	}
	if _, err = c.conn.Write(append(line, '\n')); err == nil {
		err = c.in.Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("node %d does not answer: %w", c.Node.Node, err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// Status asks for the status.
func (c *Client) Status() (*Status, error) {
	r, err := c.roundTrip(Request{Op: OpStatus})
	if err == nil && r.Status == nil {
		err = fmt.Errorf("node %d returned no status", c.Node.Node)
	}
	return r.Status, err
}

// errNothing returns the error for an answer without what the client asked for.
func errNothing(n fabric.NodeID) error { return fmt.Errorf("node %d returned nothing", n) }

// Sockets asks for the direct sockets of the node's namespace.
func (c *Client) Sockets() (*Sockets, error) {
	r, err := c.roundTrip(Request{Op: OpSockets})
	if err == nil && r.Sockets == nil {
		err = fmt.Errorf("node %d returned no sockets", c.Node.Node)
	}
	return r.Sockets, err
}

// Topology asks how the fabric is wired, and what the node has put on each link. It returns nil
// if the fabric has no topology.
func (c *Client) Topology() (*Topology, error) {
	r, err := c.roundTrip(Request{Op: OpTopology})
	return r.Topology, err
}

// Capture writes the frames of the node's interface to w as pcapng, until ctx is cancelled, the
// daemon ends or w fails. It writes at most snapLen bytes of a frame; 0: all. The Client cannot
// be used afterwards.
func (c *Client) Capture(ctx context.Context, w io.Writer, snapLen int) error {
	if _, err := c.roundTrip(Request{Op: OpCapture, SnapLen: snapLen}); err != nil {
		return err
	}
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// The daemon writes what waits, and ends.
	defer ctxend.Do(ctx, func() { c.conn.(*net.UnixConn).CloseWrite() })()
	r := bufio.NewReader(io.MultiReader(c.in.Buffered(), c.conn))
	if _, err := r.ReadByte(); err != nil { // the end of the answer's line
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// Set changes settings.
func (c *Client) Set(s Settings) error {
	_, err := c.roundTrip(Request{Op: OpSet, Settings: &s})
	return err
}

// Stop ends the daemon and waits until it has removed everything. The Client cannot be used
// afterwards.
func (c *Client) Stop(ctx context.Context) error {
	if _, err := c.roundTrip(Request{Op: OpStop}); err != nil {
		return err
	}
	return c.awaitEnd(ctx)
}

// awaitEnd waits until the daemon, which was told to end, has removed everything.
func (c *Client) awaitEnd(ctx context.Context) error {
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	defer ctxend.Do(ctx, func() { c.conn.SetReadDeadline(time.Now()) })()
	// The daemon closes the connection last; if it dies, the kernel does.
	_, err := io.Copy(io.Discard, c.conn)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("node %d is still up: %w", c.Node.Node, context.Cause(ctx))
	}
	return nil
}

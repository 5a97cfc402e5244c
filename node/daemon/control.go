package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"exnet/internal/ctxend"
	"exnet/node/control"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"

	"golang.org/x/sys/unix"
)

// acceptPause is the wait after a connection could not be accepted.
const acceptPause = 100 * time.Millisecond

// listenControl makes the control socket.
func (d *Daemon) listenControl() (*net.UnixListener, error) {
	path := d.member.File(control.Suffix)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	ln.SetUnlinkOnClose(false) // it goes with the node's other files
	if err := d.member.Own(path); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// maxClients is how many clients of one user the control socket has at once.
const maxClients = 256

// serveControl answers clients until ctx is cancelled.
func (d *Daemon) serveControl(ctx context.Context) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	defer ctxend.Do(ctx, func() { d.control.Close() })()
	failed := func(err error) { d.cfg.Log.Warn("control socket", "reason", err) }
	gate := rpc.NewGate(maxClients)
	for conn := range rpc.Accept(ctx, d.control, acceptPause, failed) {
		leave, err := gate.Enter(conn)
		if err != nil { // so many that none is told
			d.refused.Control.Add(1)
			conn.Close()
			continue
		}
		clients.Go(func() {
			defer leave()
			if err := d.member.Check(conn); err != nil {
				d.refuseClient(conn, err)
				return
			}
			d.serveClient(ctx, conn)
		})
	}
	return nil
}

// refusals count the connections to the node's sockets that were refused because of their
// user.
type refusals struct{ Control, Brokers atomic.Uint64 }

// refusalStats are a copy.
type refusalStats struct{ Control, Brokers uint64 }

// refuseTime is how long a client that is refused has to take the answer.
const refuseTime = time.Second

// lastAnswer is how long a client has to take its answer when the node ends.
const lastAnswer = time.Second

// refuseClient tells a client of the control socket why it is refused. It ignores the client's
// request.
func (d *Daemon) refuseClient(conn *net.UnixConn, why error) {
	defer conn.Close()
	if d.refused.Control.Add(1) == 1 { // the others are counted
		d.cfg.Log.Warn("control socket: refused", "reason", why)
	}
	if conn.SetDeadline(time.Now().Add(refuseTime)) != nil {
		return
	}
	answer := control.Reply{Error: "not allowed: " + why.Error() + ": run exn-tun as root, as the node's user, or in the fabric's group"}
	if json.NewEncoder(conn).Encode(answer) == nil && conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, control.MaxRequest)) // so that its writing does not fail
	}
}

// serveClient answers one client until it goes.
func (d *Daemon) serveClient(ctx context.Context, conn *net.UnixConn) {
	stopped := false
	defer func() {
		if !stopped {
			conn.Close()
		}
	}()
	// An answer that is being written is completed, if the client reads it.
	defer ctxend.Do(ctx, func() {
		conn.SetReadDeadline(time.Now())
		conn.SetWriteDeadline(time.Now().Add(lastAnswer))
	})()
	limit := &io.LimitedReader{R: conn}
	in, out := json.NewDecoder(limit), json.NewEncoder(conn)
	in.DisallowUnknownFields()
	for ctx.Err() == nil {
		limit.N = control.MaxRequest
		var req control.Request
		if err := in.Decode(&req); err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				_ = out.Encode(control.Reply{Error: "malformed request: " + err.Error()}) // it may be gone
			}
			return
		}
		if req.Op == control.OpCapture {
			d.captureFrames(ctx, conn, req.SnapLen)
			return
		}
		if req.Op == control.OpHold {
			d.holdRule(ctx, conn, req.Direct)
			return
		}
		if req.Op == control.OpReplace {
			if err := d.handOverDevice(conn); err != nil {
				_ = out.Encode(control.Reply{Error: err.Error()}) // it may be gone
				return
			}
		} else if out.Encode(d.answerRequest(req)) != nil {
			return // it is gone
		}
		if req.Op == control.OpStop || req.Op == control.OpReplace {
			// The connection of the client that ended the node closes when all is gone.
			stopped = true
			d.stopMu.Lock()
			d.stoppers = append(d.stoppers, conn)
			d.stopMu.Unlock()
			d.Stop()
			return
		}
	}
}

func (d *Daemon) answerRequest(req control.Request) (r control.Reply) {
	var err error
	if n := req.Node; n != nil && *n != d.member.ID() {
		if r, err = d.passToNode(*n, req); err != nil {
			r.Error = err.Error()
		}
		return r
	}
	switch req.Op {
	case control.OpStatus:
		r.Status, err = d.Status()
	case control.OpSet:
		if req.Settings != nil {
			err = d.Set(*req.Settings)
		}
	case control.OpTopology:
		r.Topology = d.Topology()
	case control.OpRoute:
		if req.Route != nil {
			r.Routes, err = d.Routes(*req.Route)
		}
	case control.OpProfile:
		r.Profile, err = d.Profile(req.Profile)
	case control.OpSockets:
		r.Sockets = d.Sockets()
	case control.OpDirect, control.OpRules:
		r.Direct, err = d.changeRules(req)
	case control.OpRegisters:
		r.Registers, err = d.answerRegisters(req.Register)
	case control.OpStop:
	default:
		err = d.answerOffered(req, &r)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// answerOffered has the service that knows a request answer it.
func (d *Daemon) answerOffered(req control.Request, r *control.Reply) error {
	for _, s := range d.services {
		if ok, err := s.answerRequest(req, r); ok {
			return err
		}
	}
	return fmt.Errorf("unknown operation %q", req.Op)
}

// handOverDevice gives a client the interface's descriptor, with the Reply.
func (d *Daemon) handOverDevice(conn *net.UnixConn) error {
	// Who has the descriptor reads and writes the packets of this host. So it is not for everybody
	// who may join the fabric.
	if err := caller.Trusted(conn); err != nil {
		return err
	}
	left, err := d.node.Device.Dup()
	if err != nil {
		return err
	}
	defer unix.Close(left)
	reply, err := json.Marshal(control.Reply{})
	if err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(append(reply, '\n'), unix.UnixRights(left), nil)
	return err
}

// Set changes settings while the node runs: all of them or, if one is wrong, none.
func (d *Daemon) Set(s control.Settings) error {
	d.setting.Lock()
	defer d.setting.Unlock()
	i := d.node.Interface
	coalesce, err := s.Apply(i.Coalesce())
	if err != nil {
		return err
	}
	if err := i.SetCoalesce(coalesce); err != nil {
		return err
	}
	if s.Mode == nil {
		return nil
	}
	d.setPriority(*s.Mode)
	return i.SetMode(*s.Mode)
}

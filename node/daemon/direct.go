package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	"exnet/directsockets/broker"
	"exnet/internal/ctxend"
	"exnet/node/control"
)

// errStarting says that the node is not far enough to be asked.
var errStarting = errors.New("the node is starting: ask again")

// changeRules changes the rules of the node's broker, or tells of them, and has what they forbid
// go back to TCP.
func (d *Daemon) changeRules(req control.Request) (*control.Direct, error) {
	if d.sockets == nil {
		return nil, errStarting
	}
	return control.SetDirect(d.sockets.cfg.Switch, req, d.sockets.returnForbidden)
}

// holdRule keeps the connections of a rule on TCP until the client goes.
func (d *Daemon) holdRule(ctx context.Context, conn *net.UnixConn, r *broker.Rule) {
	if d.sockets == nil {
		_ = json.NewEncoder(conn).Encode(control.Reply{Error: errStarting.Error()}) // it may be gone
		return
	}
	defer ctxend.Do(ctx, func() { conn.Close() })()
	control.HoldDirect(conn, d.sockets.cfg.Switch, r, d.sockets.returnForbidden)
}

// returnForbidden has the node's broker, if there is one, take back what its switch forbids.
func (s *sockets) returnForbidden() (back broker.Returned) {
	if b := s.broker(); b != nil {
		back = b.Switched()
	}
	return back
}

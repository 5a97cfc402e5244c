package daemon

import (
	"errors"

	"exnet/directsockets/broker"
	"exnet/node/control"
)

// errStarting says that the node is not far enough to be asked.
var errStarting = errors.New("the node is starting: ask again")

// direct adds a rule to the switch of the node's broker, and has what it forbids go back to TCP;
// nil: it only tells of the rules.
func (d *Daemon) direct(r *broker.Rule) (*control.Direct, error) {
	if d.sockets == nil {
		return nil, errStarting
	}
	return control.SetDirect(d.sockets.cfg.Switch, r, func() (back broker.Returned) {
		if b := d.sockets.broker(); b != nil {
			back = b.Switched()
		}
		return back
	})
}

package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
)

// Direct says which connections may be direct, as an operator has said it.
type Direct struct {
	// Rules are those of the switch, the first one first. Of those that fit a connection the last
	// one counts; where none fits, it may be direct.
	Rules []broker.Rule `json:"rules"`
	// Held are those that captures keep on TCP meanwhile, whatever Rules say.
	Held []broker.Rule `json:"held,omitempty"`
	broker.Returned
}

// directSuffix follows the name of the socket of a broker that exn-run started, and agentDirect is
// in the directory of the brokers: where an agent takes Requests of OpDirect.
const (
	directSuffix = ".direct"
	agentDirect  = "agent" + directSuffix
)

// errRules says that a switch has as many rules as there may be.
var errRules = errors.New("there are too many rules: clear them with exn-tun direct on")

// SetDirect answers a Request of OpDirect or OpRules: it changes the rules of a switch as that
// says, and has switched take back what they forbid.
func SetDirect(s *broker.Switch, req Request, switched func() broker.Returned) (*Direct, error) {
	changed, ok := false, true
	switch {
	case req.Op == OpRules && req.Rules != nil:
		changed, ok = true, s.Set(req.Rules.Container, req.Rules.Rules)
	case req.Op == OpDirect && req.Direct != nil:
		changed, ok = true, s.Add(*req.Direct)
	}
	if !ok {
		return nil, errRules
	}
	var back broker.Returned
	if changed {
		back = switched()
	}
	return directOf(s, back), nil
}

func directOf(s *broker.Switch, back broker.Returned) *Direct {
	d := &Direct{Returned: back}
	d.Rules, d.Held = s.Rules()
	return d
}

// errHeld says that a switch holds as many rules as it may.
var errHeld = errors.New("there are too many captures of direct connections: end one")

// HoldDirect answers a Request of OpHold: it keeps the connections that r is about on TCP until the
// client has gone, or conn is closed.
func HoldDirect(conn net.Conn, s *broker.Switch, r *broker.Rule, switched func() broker.Returned) {
	if r == nil {
		r = new(broker.Rule)
	}
	release, ok := s.Hold(*r)
	if !ok {
		_ = json.NewEncoder(conn).Encode(Reply{Error: errHeld.Error()}) // it may be gone
		return
	}
	defer func() { release(); switched() }()
	d := directOf(s, switched())
	_ = conn.SetDeadline(time.Now().Add(tellTimeout)) // taking back may have taken longer
	if json.NewEncoder(conn).Encode(Reply{Direct: d}) == nil && conn.SetDeadline(time.Time{}) == nil {
		_, _ = io.Copy(io.Discard, conn) // it ends with the client
	}
}

// NewBrokerSwitch takes Requests of OpDirect for a broker that belongs to no node, at a socket
// beside its own, and that of EndBroker. For that it calls stop, which does not block, with what is
// to be closed when the broker is gone.
func NewBrokerSwitch(s *broker.Server, sw *broker.Switch, stop func(asked *os.File)) (*Teller, error) {
	return newTeller(Beside(s.Path(), directSuffix), answerDirect(sw, s.Switched, stop))
}

// NewAgentSwitch takes them for an agent, at a socket in the directory of the brokers, which has to
// be there.
func NewAgentSwitch(g *broker.Group, sw *broker.Switch) (*Teller, error) {
	return newTeller(filepath.Join(client.SystemDir, agentDirect), answerDirect(sw, g.Switched, nil))
}

// answerDirect answers a Request for a switch. stop as in NewBrokerSwitch; nil: it ends for nobody.
func answerDirect(sw *broker.Switch, switched func() broker.Returned, stop func(*os.File)) func(*net.UnixConn) {
	return func(conn *net.UnixConn) {
		var req Request
		var r Reply
		err := json.NewDecoder(io.LimitReader(conn, MaxRequest)).Decode(&req)
		switch {
		case err != nil:
		case req.Op == OpHold:
			HoldDirect(conn, sw, req.Direct, switched)
			return
		case req.Op == OpStop && stop != nil:
			if err = answerStop(conn, sw, stop); err == nil {
				return
			}
		case req.Op != OpDirect && req.Op != OpRules:
			err = fmt.Errorf("unknown operation %q", req.Op)
		default:
			r.Direct, err = SetDirect(sw, req, switched)
		}
		if err != nil {
			r.Error = err.Error()
		}
		_ = conn.SetDeadline(time.Now().Add(tellTimeout)) // taking back may have taken longer
		_ = json.NewEncoder(conn).Encode(r)               // who asked may be gone
	}
}

// Direct has the node answer a Request of OpDirect or OpRules.
func (c *Client) Direct(req Request) (*Direct, error) {
	r, err := c.askWithin(req, directTime)
	if err == nil && r.Direct == nil {
		err = errNothing(c.Node.Node)
	}
	return r.Direct, err
}

// Switched is what one that takes Requests of OpDirect has answered.
type Switched struct {
	Who string `json:"who"` // agent, or a broker's path
	*Direct
}

// SwitchDirect has the agent and the brokers that exn-run has started answer a Request of OpDirect
// or OpRules, as far as this user may ask them.
func SwitchDirect(req Request) ([]Switched, error) {
	all := []Switched{}
	err := askBrokers(directSuffix, &req, directTime, func(path string, r Reply) bool {
		who := "exn-run's broker " + Beside(path, ".sock")
		if filepath.Base(path) == agentDirect {
			who = "agent"
		}
		all = append(all, Switched{who, r.Direct})
		return r.Direct != nil
	})
	return all, err
}

// directTime bounds the wait for a switch: the processes of many containers may have to be read.
const directTime = time.Minute

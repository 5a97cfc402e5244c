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

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/node/rpc/caller"
)

// Direct says which connections may be direct, as an operator has said it.
type Direct struct {
	// Rules are those of the switch, the first one first. Of those that fit a connection the last
	// one counts; where none fits, it may be direct.
	Rules []broker.Rule `json:"rules"`
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

// SetDirect adds a rule to a switch, if it is not nil, and has takeBack take back what the rules
// forbid.
func SetDirect(s *broker.Switch, r *broker.Rule, takeBack func() broker.Returned) (*Direct, error) {
	var d Direct
	if r != nil {
		if !s.Add(*r) {
			return nil, errRules
		}
		d.Returned = takeBack()
	}
	d.Rules = s.Rules()
	return &d, nil
}

// NewBrokerSwitch takes Requests of OpDirect for a broker that belongs to no node, at a socket
// beside its own.
func NewBrokerSwitch(s *broker.Server, sw *broker.Switch) (*Teller, error) {
	return newTeller(besides(s.Path(), directSuffix), answerDirect(sw, s.TakeBack))
}

// NewAgentSwitch takes them for an agent, at a socket in the directory of the brokers, which has to
// be there.
func NewAgentSwitch(g *broker.Group, sw *broker.Switch) (*Teller, error) {
	return newTeller(filepath.Join(client.SystemDir, agentDirect), answerDirect(sw, g.TakeBack))
}

func answerDirect(sw *broker.Switch, takeBack func() broker.Returned) func(*net.UnixConn) {
	return func(conn *net.UnixConn) {
		var req Request
		var r Reply
		err := json.NewDecoder(io.LimitReader(conn, MaxRequest)).Decode(&req)
		switch {
		case err != nil:
		case req.Op != OpDirect:
			err = fmt.Errorf("unknown operation %q", req.Op)
		default:
			r.Direct, err = SetDirect(sw, req.Direct, takeBack)
		}
		if err != nil {
			r.Error = err.Error()
		}
		_ = json.NewEncoder(conn).Encode(r) // who asked may be gone
	}
}

// Direct adds a rule to the switch of the node's broker; nil: it only asks.
func (c *Client) Direct(rule *broker.Rule) (*Direct, error) {
	r, err := c.ask(Request{Op: OpDirect, Direct: rule})
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

// SwitchDirect adds a rule to the switches of the agent and of the brokers that exn-run has
// started, as far as this user may; nil: it only asks.
func SwitchDirect(rule *broker.Rule) ([]Switched, error) {
	all := []Switched{}
	for _, dir := range slices.Compact([]string{client.SystemDir, client.UserDir()}) {
		if client.CheckDir(filepath.Dir(dir)) != nil || client.CheckDir(dir) != nil {
			continue // it is not there, or anybody may have put there what is in it
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*"+directSuffix))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			who := "exn-run's broker " + besides(path, ".sock")
			if filepath.Base(path) == agentDirect {
				who = "agent"
			}
			d, err := askDirect(path, rule)
			if errors.Is(err, fs.ErrPermission) || ending(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", who, err)
			}
			all = append(all, Switched{who, d})
		}
	}
	return all, nil
}

func askDirect(path string, rule *broker.Rule) (*Direct, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := caller.Trusted(conn); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(directTime)); err != nil {
		return nil, err
	}
	var r Reply
	if err := json.NewEncoder(conn).Encode(Request{Op: OpDirect, Direct: rule}); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxTold)).Decode(&r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	if r.Direct == nil {
		return nil, errors.New("it returned nothing")
	}
	return r.Direct, nil
}

// directTime bounds the wait for a switch: the processes of many containers may have to be read.
const directTime = time.Minute

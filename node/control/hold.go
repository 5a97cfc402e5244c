package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"exnet/directsockets/broker"
	"exnet/fabric/emp"
)

// Hold keeps the connections that a rule is about on TCP. Whoever it has asked lets them go when
// it is closed, or its process ends, however that happens.
//
// Concurrency: all methods may be called from many goroutines.
type Hold struct {
	rule broker.Rule
	wait sync.WaitGroup

	mu     sync.Mutex
	held   map[string]net.Conn // +checklocks:mu
	closed bool                // +checklocks:mu
}

// NewHold makes a Hold, which asks nobody yet.
func NewHold(rule broker.Rule) *Hold {
	return &Hold{rule: rule, held: make(map[string]net.Conn)}
}

// Brokers asks the agent and the brokers that exn-run has started, as far as this user may, of
// those that it has not asked yet.
func (h *Hold) Brokers() (all []Switched, err error) {
	paths, err := brokerSockets(directSuffix)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		who := "exn-run's broker " + Beside(path, ".sock")
		if filepath.Base(path) == agentDirect {
			who = "agent"
		}
		s, err := h.askBroker(path, who, func() (net.Conn, Reply, error) {
			return callBroker(path, &Request{Op: OpHold, Direct: &h.rule}, directTime)
		})
		if err != nil && !passedOver(err) {
			return all, err
		}
		if s != nil {
			all = append(all, *s)
		}
	}
	return all, nil
}

// Node asks a node, if it has not yet.
func (h *Hold) Node(dir string, d emp.Description) (*Switched, error) {
	return h.askBroker(emp.File(dir, d.Node, Suffix), fmt.Sprintf("node %d of %s", d.Node, dir), func() (net.Conn, Reply, error) {
		c, err := Dial(dir, d)
		if err != nil {
			return nil, Reply{}, err
		}
		r, err := c.askWithin(Request{Op: OpHold, Direct: &h.rule}, directTime)
		if err != nil {
			c.Close()
		}
		return c.conn, r, err
	})
}

// askBroker asks one that has the socket at path. nil without an error: it is asked already.
func (h *Hold) askBroker(path, who string, call func() (net.Conn, Reply, error)) (*Switched, error) {
	h.mu.Lock()
	_, asked := h.held[path]
	h.mu.Unlock()
	if asked {
		return nil, nil
	}
	conn, r, err := call()
	if err == nil && r.Direct == nil {
		conn.Close()
		err = errEmpty
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", who, err)
	}
	_ = conn.SetDeadline(time.Time{}) // it fails only of what is closed
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	h.held[path] = conn
	h.wait.Go(func() { // who holds may end, and another one come
		_, _ = io.Copy(io.Discard, conn)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.held, path)
	})
	return &Switched{who, r.Direct}, nil
}

// Close lets the connections go.
func (h *Hold) Close() error {
	h.mu.Lock()
	h.closed = true
	var errs []error
	for _, conn := range h.held {
		errs = append(errs, conn.Close())
	}
	h.mu.Unlock()
	h.wait.Wait()
	return errors.Join(errs...)
}

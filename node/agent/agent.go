package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/pairing"
	"exnet/internal/logger"
	"exnet/internal/netns"
	"exnet/node/control"

	"golang.org/x/sys/unix"
)

// Times of an agent: between two looks at /proc, and for how long a namespace stays when nobody
// asks in it, as one program may follow another.
const (
	lookTime = 500 * time.Millisecond
	stayTime = 2 * time.Second
	// nodeTime is between two looks whether a node has ended whose namespace is served then, and
	// nodeCost more for each such node.
	nodeTime = 50 * time.Millisecond
	nodeCost = time.Millisecond
)

// errNode says that a node has reserved the namespace.
var errNode = fmt.Errorf("agent: a node is to serve it: %w", broker.ErrInUse)

// ErrUnsupported says that this kernel, or what this process may do, does not allow it.
var ErrUnsupported = pairing.ErrUnsupported

const procDir = "/proc"

// hostName is what the agent's own namespace is called.
const hostName = "host"

// agent is one that runs. Run's goroutine has all of it.
type agent struct {
	log      logger.Logger
	lines    *accounts     // writes to log what accounts cause
	proc     string        // where the processes are
	ownInode uint64        // inode of this process's namespace, which is served, too; 0: it is not
	doorPath string        // "": there is no door
	pin      string        // see Config
	every    time.Duration // between two looks
	rules    Rules
	group    *broker.Group
	direct   broker.Switch
	search   *search
	attacher *attacher
	door     *door
	places   map[uint64]*place
	// told: namespaces that another broker serves, that could not be entered, or of which there are
	// too many, which the log knows, and when that was found last.
	told map[uint64]time.Time
	// nodes: those of told that a node serves, with a process there that asks.
	nodes map[uint64]int
}

// place is a namespace and its broker.
type place struct {
	ns      *netns.NS
	account string // see accountOf
	server  *broker.Server
	ruled   func() // ends the search for its rules
	teller  *control.Teller
	whose   control.Whose
	seen    time.Time // when a process there last asked
	ended   chan error
}

// Config is what an agent is given.
type Config struct {
	Log logger.Logger
	// Attach puts the library into static programs that ask.
	Attach Attach
	// Rules finds the rules that come with a container. Default: there are none.
	Rules Rules
	// Pin is where what sees the handshakes stays when the agent ends, for the next agent. See
	// pairing.New. Default: it ends with this one.
	Pin string
	// Ready is called once the agent serves.
	Ready func()
}

// Run serves until ctx is cancelled. ErrUnsupported: this host cannot.
func Run(ctx context.Context, cfg Config) error {
	own, ok := namespaceOf(filepath.Join(procDir, "self/ns/net"))
	if !ok {
		return errors.New("agent: /proc is not mounted")
	}
	a := &agent{log: cfg.Log, proc: procDir, ownInode: own, doorPath: broker.DoorPath, pin: cfg.Pin, every: lookTime, attacher: newAttacher(cfg.Attach), rules: cfg.Rules}
	return a.serveNamespaces(ctx, cfg.Ready)
}

// newPairs begins to look at handshakes. What cannot be pinned ends with the agent.
func (a *agent) newPairs() (*pairing.Pairs, error) {
	pairs, err := pairing.New(a.pin)
	if err != nil && a.pin != "" {
		a.log.Warn("direct sockets: connections that are made while no agent runs stay on TCP", "reason", err)
		return pairing.New("")
	}
	return pairs, err
}

func (a *agent) serveNamespaces(ctx context.Context, ready func()) (err error) {
	pairs, err := a.newPairs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pairs.Close()) }()
	if err := broker.Keep(); err != nil {
		return err
	}
	if a.attacher == nil {
		a.attacher = newAttacher(nil)
	}
	defer a.attacher.work.Wait()
	a.lines = newAccounts(a.log)
	a.places, a.told, a.nodes, a.search = make(map[uint64]*place), make(map[uint64]time.Time), make(map[uint64]int), newSearch(a.proc)
	a.group = broker.NewGroup(func(client uint64) (broker.End, bool) {
		end, ok := pairs.Server(client)
		return broker.End(end), ok
	})
	defer func() { err = errors.Join(err, a.close()) }()
	var watch sync.WaitGroup
	watched, end := context.WithCancel(ctx)
	watch.Go(func() { a.group.Watch(watched) })
	defer func() { end(); watch.Wait() }()
	a.door = a.openDoor()
	defer func() { err = errors.Join(err, a.door.close()) }()
	if a.door != nil { // else another agent may have the place
		direct, err := control.NewAgentSwitch(a.group, &a.direct)
		if err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		defer func() { err = errors.Join(err, direct.Close()) }()
	}
	tick := time.NewTicker(a.every)
	defer tick.Stop()
	for first := true; ; first = false {
		if err := a.lookForAskers(time.Now()); err != nil {
			return err
		}
		a.attachNext(ctx, time.Now())
		a.noteStays()
		a.group.SetServices(pairs.Services())
		a.door.resetBudget()
		if first {
			ready()
		}
		for waits := true; waits; {
			var nodes <-chan time.Time
			if n := len(a.nodes); n > 0 {
				nodes = time.After(nodeTime + time.Duration(n)*nodeCost)
			}
			select {
			case <-ctx.Done():
				return nil
			case pid := <-a.door.heardKnocks():
				a.serveCaller(pid, time.Now())
			case r := <-a.attacher.done:
				a.attachEnded(r, time.Now())
				a.attachNext(ctx, time.Now())
			case <-nodes:
				a.followNodes(time.Now())
			case <-tick.C:
				waits = false
			}
		}
	}
}

// lookForAskers serves the namespaces in which somebody asks now, and leaves those in which
// nobody does, or that a node is to serve.
func (a *agent) lookForAskers(now time.Time) error {
	found, err := a.search.findAskers(now, a.ownInode)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if a.ownInode != 0 {
		found[a.ownInode] = os.Getpid()
	}
	a.meetAll(found, now)
	for inode := range a.told {
		if _, there := found[inode]; !there {
			delete(a.told, inode)
			delete(a.nodes, inode)
		}
	}
	for inode, p := range a.places {
		if now.Sub(p.seen) >= stayTime || broker.Reserved(inode) {
			delete(a.places, inode)
			if err := p.close(); err != nil {
				a.logOf(p.account).Warn("direct sockets: namespace was left", "namespace", inode, "reason", err)
			}
		}
	}
	return nil
}

// followNodes serves the namespaces of nodes that have ended.
func (a *agent) followNodes(now time.Time) {
	for inode, pid := range a.nodes {
		if !broker.Reserved(inode) {
			a.serveAsker(inode, pid, now)
		}
	}
}

// meetAll serves the namespaces of processes that ask. Those that were left out before come last,
// the longest ago first, and are tried for searchTime: who can make namespaces can make very many.
func (a *agent) meetAll(found map[uint64]int, now time.Time) {
	var again []uint64
	for inode, pid := range found {
		if a.told[inode].IsZero() {
			a.serveAsker(inode, pid, now)
		} else {
			again = append(again, inode)
		}
	}
	slices.SortFunc(again, func(x, y uint64) int { return a.told[x].Compare(a.told[y]) })
	begin := time.Now()
	for _, inode := range again {
		a.serveAsker(inode, found[inode], now)
		if time.Since(begin) >= searchTime {
			return
		}
	}
}

// serveAsker serves the namespace of a process that asks.
func (a *agent) serveAsker(inode uint64, pid int, now time.Time) {
	p := a.places[inode]
	if p == nil {
		var err error
		delete(a.nodes, inode)
		if p, err = a.startBroker(inode, pid); err != nil {
			if errors.Is(err, errNode) {
				a.nodes[inode] = pid
			}
			first := a.told[inode].IsZero()
			if ended := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH); ended && first {
				return // the process is no more: that is no news
			}
			if a.told[inode] = now; first {
				a.logOf(accountOf(a.proc, pid)).Warn("direct sockets: namespace is left out", "namespace", inode, "pid", pid, "reason", err)
			}
			return
		}
		a.places[inode] = p
		delete(a.told, inode)
		a.logOf(p.account).Info("direct sockets", "namespace", inode, "container", p.whose.Container, "name", p.whose.Name)
	}
	p.seen = now
}

// logOf is where what an account causes is logged: who can make namespaces could fill the log with
// a line for each. What root does has no limit.
func (a *agent) logOf(account string) logger.Logger {
	if account == "" {
		return a.log
	}
	return a.lines.For(account)
}

// startBroker makes the broker of a process's namespace, and runs it.
func (a *agent) startBroker(inode uint64, pid int) (p *place, err error) {
	if broker.Reserved(inode) {
		return nil, errNode
	}
	p = &place{ruled: func() {}, ended: make(chan error, 1)}
	path := filepath.Join(a.proc, strconv.Itoa(pid), "ns/net")
	if p.ns, err = netns.Open(path); err != nil {
		return nil, err
	}
	if p.ns.Inode() != inode { // another process by now
		return nil, errors.Join(fmt.Errorf("agent: process %d has left its namespace", pid), p.ns.Close())
	}
	p.whose = control.Whose{Name: hostName}
	if inode != a.ownInode {
		if p.account = accountOf(a.proc, pid); p.account != "" && a.namespacesOf(p.account) >= maxNamespaces {
			return nil, errors.Join(fmt.Errorf("agent: %.12s has %d namespaces already", p.account, maxNamespaces), p.ns.Close())
		}
		p.whose = whoseOf(a.proc, pid)
	}
	cfg := broker.Config{Group: a.group, In: p.ns.Do, Limited: inode != a.ownInode, Switch: &a.direct, Names: []string{p.whose.Container, p.whose.Name}, Log: a.logOf(p.account)}
	if p.server, err = broker.New(cfg); errors.Is(err, broker.ErrInUse) {
		if ended := control.EndBroker(inode); ended == nil {
			p.server, err = broker.New(cfg)
		} else if !errors.Is(ended, fs.ErrNotExist) {
			err = errors.Join(err, ended)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.ns.Close())
	}
	if p.teller, err = control.NewTeller(p.server, p.whose, func() []control.Stay { return a.attacher.staysOf(inode) }); err != nil {
		return nil, errors.Join(err, p.server.Close(), p.ns.Close())
	}
	if inode != a.ownInode {
		p.ruled = a.findRules(p, containerOf(a.proc, pid))
	}
	go func() { p.ended <- p.server.Run(context.Background()) }()
	return p, nil
}

// maxNamespaces is how many network namespaces of one account are served: who is root in a
// container, or may make user namespaces, can make many.
const maxNamespaces = 64

// namespacesOf counts those of an account that are served.
func (a *agent) namespacesOf(account string) (n int) {
	for _, p := range a.places {
		if p.account == account {
			n++
		}
	}
	return n
}

// close ends the broker and lets the namespace go.
func (p *place) close() error {
	p.ruled()
	err := errors.Join(p.teller.Close(), p.server.Close())
	return errors.Join(err, <-p.ended, p.ns.Close())
}

// close leaves all namespaces.
func (a *agent) close() error {
	a.search.endScan()
	var errs []error
	for _, p := range a.places {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

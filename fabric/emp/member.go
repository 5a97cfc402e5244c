package emp

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"exnet/fabric"
	_ "exnet/internal/linux"
	"exnet/internal/logger"
)

// Config configures a node. The zero value of a field means its default.
type Config struct {
	// Dir is the directory of the fabric. Required; see DefaultDir.
	Dir string
	// Group is the name or number of the group that may join the fabric. Default:
	// the directory stays as it is, and a new one is for this user alone.
	Group string
	// Node is the node ID asked for. Default: the lowest free one, from 1.
	Node *fabric.NodeID
	// Addrs are the node's IP addresses, which no other living node may have.
	Addrs []netip.Prefix
	// MTU is the MTU of the node's interface; peers warn if theirs differs.
	MTU int
	// MAC returns the MAC address of a node. All nodes of a fabric must agree on it.
	// Default: none.
	MAC func(fabric.NodeID) string
	// Topology identifies the wiring of the fabric. All its nodes must agree on it.
	// Default: none.
	Topology string
	// Link is the kind of link that this node asks its peers' Linkers for. Default:
	// none in particular.
	Link string
	// Has reports whether the topology has a node. Default: it has every node.
	Has func(fabric.NodeID) bool
	// OnGroups is called with the multicast groups that have members, whenever they
	// change while Run runs. It must not call Run or Leave. Default: none.
	OnGroups func([]Group)
	// OnLeft is called while Run runs with a node that is not in the fabric any more, however it
	// has ended, once its last link has. A link also ends while its peer lives. It must not
	// block. Default: none.
	OnLeft func(fabric.NodeID)
	// Log gets a message for each peer that cannot be linked. Default: none.
	Log logger.Logger
}

// Member is a node of a fabric.
//
// Concurrency: all methods may be called from many goroutines; Run once.
type Member struct {
	self Description
	log  logger.Logger

	onGroups func([]Group)
	onLeft   func(fabric.NodeID)
	told     []Group       // the last argument of onGroups; belongs to Run
	wished   chan struct{} // holds a token when wishes have changed

	dir  *dir
	file *os.File          // the locked description
	ln   *net.UnixListener // where peers connect to

	mu    sync.Mutex
	peers map[fabric.NodeID]*peer // +checklocks:mu
	left  bool                    // +checklocks:mu
	// wishes are the multicast groups that this node wants to be in.
	wishes map[netip.Addr]bool // +checklocks:mu
}

// Join makes this process a node of the fabric and assigns its ID. Run links it with its
// peers. Leave releases the ID.
//
// The error wraps fabric.ErrInUse or ErrAddress if another living node has the ID
// or an address, ErrVersion if a living node is of another version, and
// ErrConfig, fs.ErrPermission, unix.ENOSPC or unix.EROFS for what is wrong with
// the directory.
func Join(cfg Config) (m *Member, err error) {
	if cfg.Log == nil {
		cfg.Log = logger.Discard{}
	}
	if cfg.OnGroups == nil {
		cfg.OnGroups = func([]Group) {}
	}
	if cfg.OnLeft == nil {
		cfg.OnLeft = func(fabric.NodeID) {}
	}
	if cfg.MAC == nil {
		cfg.MAC = func(fabric.NodeID) string { return "" }
	}
	if cfg.Has == nil {
		cfg.Has = func(fabric.NodeID) bool { return true }
	}
	d, lock, err := enterDir(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	m = &Member{
		log: cfg.Log, dir: d, onGroups: cfg.OnGroups, onLeft: cfg.OnLeft,
		peers: make(map[fabric.NodeID]*peer), wishes: make(map[netip.Addr]bool), wished: make(chan struct{}, 1),
	}
	if err := m.takeID(cfg); err != nil {
		d.removeIfEmpty(lock)
		return nil, err
	}
	return m, nil
}

// enterDir returns the directory, locked.
func enterDir(cfg Config) (*dir, *os.File, error) {
	for tries := 1; ; tries++ {
		d, err := joinDir(cfg.Dir, cfg.Group)
		if err == nil {
			var lock *os.File
			if lock, err = d.lock(); err == nil {
				return d, lock, nil
			}
		}
		// Its last node may just have removed the directory.
		if !errors.Is(err, fs.ErrNotExist) || tries == 10 {
			return nil, nil, err
		}
	}
}

// takeID takes an ID. The caller holds the lock.
func (m *Member) takeID(cfg Config) (err error) {
	if _, err := m.dir.reap(); err != nil {
		return err
	}
	alive, _, err := m.dir.listNodes()
	if err != nil {
		return err
	}
	id, err := chooseID(cfg, alive)
	if err != nil {
		return err
	}
	m.self = Description{
		Version:  Version,
		Node:     id,
		Token:    Token(rand.Uint64()),
		Addrs:    cfg.Addrs,
		MTU:      cfg.MTU,
		MAC:      cfg.MAC(id),
		Topology: cfg.Topology,
		Link:     cfg.Link,
		PID:      os.Getpid(),
		Since:    time.Now().Truncate(time.Millisecond),
	}
	defer func() {
		if err != nil {
			if m.ln != nil {
				m.ln.Close()
			}
			err = errors.Join(err, m.dir.removeNode(id))
		}
	}()
	path := m.dir.file(fileName(id, socketSuffix))
	if m.ln, err = net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network}); err != nil {
		return dirError(err)
	}
	m.ln.SetUnlinkOnClose(false) // it is removed under the lock
	if err = os.Chmod(path, m.dir.fileMode()); err != nil {
		return dirError(err)
	}
	m.file, err = m.dir.publish(m.self)
	return err
}

// chooseID returns the ID for the node, or why it cannot join the living nodes.
func chooseID(cfg Config, alive []Description) (fabric.NodeID, error) {
	taken := make(map[fabric.NodeID]Description, len(alive))
	for _, d := range alive {
		if d.Version != Version {
			return 0, fmt.Errorf("emp: %w", versionError(d.Node, d.Version))
		}
		taken[d.Node] = d
	}
	if cfg.Node != nil {
		if d, ok := taken[*cfg.Node]; ok {
			return 0, fmt.Errorf("emp: node %d: %w by process %d: leave the ID out, or choose another", d.Node, fabric.ErrInUse, d.PID)
		}
	}
	for _, d := range alive {
		if ours := cfg.MAC(d.Node); ours != d.MAC {
			return 0, fmt.Errorf("emp: %w: node %d has the MAC address %s, but this node would give it %s: use the same MAC prefix", ErrConfig, d.Node, d.MAC, ours)
		}
		if d.Topology != cfg.Topology {
			return 0, fmt.Errorf("emp: %w: node %d has %s, this node has %s: use the same topology", ErrConfig, d.Node, wiring(d.Topology), wiring(cfg.Topology))
		}
		for _, theirs := range d.Addrs {
			for _, ours := range cfg.Addrs {
				if ours.Addr() == theirs.Addr() {
					return 0, fmt.Errorf("emp: %w: node %d has %v: choose another", ErrAddress, d.Node, theirs.Addr())
				}
			}
		}
	}
	if cfg.Node != nil {
		if !cfg.Has(*cfg.Node) {
			return 0, fmt.Errorf("emp: %w: node %d is not in the topology %s", ErrConfig, *cfg.Node, cfg.Topology)
		}
		return *cfg.Node, nil
	}
	for id := fabric.NodeID(1); id != 0; id++ {
		if _, ok := taken[id]; !ok && cfg.Has(id) {
			return id, nil
		}
	}
	return 0, fmt.Errorf("emp: %w", ErrFull)
}

// wiring names a topology.
func wiring(s string) string {
	if s == "" {
		return "no topology"
	}
	return "the topology " + s
}

// ID returns the node's ID.
func (m *Member) ID() fabric.NodeID { return m.self.Node }

// Self returns the node's description in the directory.
func (m *Member) Self() Description { return m.self }

// Dir returns the path of the directory.
func (m *Member) Dir() string { return m.dir.path }

// File returns a path in the directory for another file of this node, such as a
// socket; it is removed with the node. The suffix begins with a dot.
func (m *Member) File(suffix string) string { return File(m.dir.path, m.self.Node, suffix) }

// Own gives a file that this node made in the directory the owner and mode of the
// node's other files there.
func (m *Member) Own(path string) error {
	if err := os.Chmod(path, m.dir.fileMode()); err != nil {
		return dirError(err)
	}
	return nil
}

// File returns the path of a file of a node in a directory.
func File(dir string, n fabric.NodeID, suffix string) string {
	return filepath.Join(dir, fileName(n, suffix))
}

// Leave releases the ID and removes the node's files; the last node also removes the
// directory if EMP made it. It is idempotent; Run calls it when it ends.
func (m *Member) Leave() error {
	m.mu.Lock()
	left := m.left
	m.left = true
	m.mu.Unlock()
	if left {
		return nil
	}
	// Close the socket first, so that no peer connects and waits for nothing.
	errs := []error{m.ln.Close()}
	lock, err := m.dir.lock()
	if err == nil {
		errs = append(errs, m.dir.removeNode(m.self.Node), m.dir.editGroups(func(*groupsFile) {}))
		m.dir.removeIfEmpty(lock)
		lock.Close()
	} else if !errors.Is(err, fs.ErrNotExist) { // otherwise the directory was removed
		errs = append(errs, err)
	}
	return errors.Join(append(errs, m.file.Close())...)
}

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/test/testlab"
	"exnet/test/testlab/testnode"

	"golang.org/x/sys/unix"
)

// lab is the nodes, and the programs on them.
type lab struct {
	book
	dir   string // where the nodes meet
	home  *netns.NS
	nodes []*node
	links map[int]map[string]uint64 // guarded by mu; counters of links, by PID of the daemon
}

// node is one node, its namespace and its programs.
type node struct {
	id       int
	ns       *netns.NS
	daemon   *program
	programs []*program // servers first
}

const nodeCount = 4

// badNode is the node whose links lose packets.
const badNode = nodeCount

// newLab brings everything up, with no traffic yet.
func newLab(t *testing.T, seed uint64, spoil string) *lab {
	t.Helper()
	l := &lab{dir: filepath.Join(t.TempDir(), "soak"), links: make(map[int]map[string]uint64)}
	l.book.init()
	// Everything that was made, in the reverse order.
	var err error
	if l.home, err = netnstest.Here(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.home.Close() })
	redis, python, curl := find("redis-server"), find("python3"), find("curl")
	j := job{Nodes: nodeCount, Seed: seed, Break: spoil, Curl: curl}
	if redis != "" {
		j.Redis = 2
	}
	if python != "" {
		j.Echo = 3
	}
	for id := 1; id <= nodeCount; id++ {
		n, err := l.newNode(t, id, seed)
		if err != nil {
			t.Fatal(err)
		}
		l.nodes = append(l.nodes, n)
		if err := n.daemon.start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range l.nodes {
		if err := l.linked(n); err != nil {
			t.Fatal(err)
		}
		if n.id == j.Redis {
			n.add(l, "redis", portRedis, job{Role: roleRun}, "--", redis, "--port", strconv.Itoa(portRedis), "--protected-mode", "no", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
		}
		if n.id == j.Echo {
			n.add(l, "echo", 0, job{Role: roleRun}, "--", python, "testdata/echo.py", "serve", strconv.Itoa(portRun))
		}
		j := j
		j.Node, j.Role = n.id, roleServer
		n.add(l, roleServer, 0, j)
		j.Role = roleClient
		n.add(l, roleClient, 0, j)
		if python != "" {
			args := []string{"--", python, "testdata/echo.py", "ask", fmt.Sprint(seed), fmt.Sprint(n.id)}
			for peer := 1; peer <= nodeCount; peer++ {
				if peer != n.id {
					args = append(args, fmt.Sprintf("%d,%s,%v,%d", peer, roleServer, addr(peer, false), portEcho))
					if peer == j.Echo {
						args = append(args, fmt.Sprintf("%d,echo,%v,%d", peer, addr(peer, false), portRun))
					}
				}
			}
			n.add(l, "python", 0, job{Role: roleRun}, args...)
		}
		for _, p := range n.programs {
			if err := p.start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// find returns the path of a program, "" if it is not there. What stands for another program there
// (as pyenv's python3) is passed over if the system has the program itself.
func find(name string) string {
	for _, path := range []string{filepath.Join("/usr/bin", name), name} {
		if path, err := exec.LookPath(path); err == nil {
			return path
		}
	}
	return ""
}

func (l *lab) newNode(t *testing.T, id int, seed uint64) (*node, error) {
	ns := testlab.LoopbackNS(t)
	n := &node{id: id, ns: ns}
	// IPv6 addresses stay when the interface is down, and are there at once.
	for path, value := range map[string]string{"ipv6/conf/all/keep_addr_on_down": "1", "ipv6/conf/default/accept_dad": "0"} {
		if err := ns.SetSysctl(path, value); err != nil {
			return n, err
		}
	}
	text, err := json.Marshal(job{Role: roleTun})
	if err != nil {
		return n, err
	}
	argv := []string{"/proc/self/exe", "up", "--dir", l.dir, "--netns", ns.Path(), "--node", strconv.Itoa(id), "--metrics", ":0",
		"--addr", addr(id, false).String() + "/24", "--addr6", addr(id, true).String() + "/64"}
	if id == badNode && *soakLinks != "" {
		argv = append(argv, "--faults", fmt.Sprintf("%s,seed=%d", *soakLinks, seed))
	}
	n.daemon = &program{name: fmt.Sprintf("node %d", id), node: id, ns: l.home, argv: argv, env: []string{jobEnv + "=" + string(text)},
		says: ifname + " is up", onEvent: l.event, onEnd: l.ended}
	return n, nil
}

// add adds a program to the node.
func (n *node) add(l *lab, name string, accepts int, j job, args ...string) {
	text, err := json.Marshal(j)
	if err != nil {
		panic(err) // it is plain data
	}
	n.programs = append(n.programs, &program{name: name, node: n.id, ns: n.ns, argv: append([]string{"/proc/self/exe"}, args...),
		env: []string{jobEnv + "=" + string(text)}, accepts: accepts, onEvent: l.event, onEnd: l.ended})
}

// program returns one of the node's programs.
func (n *node) program(name string) *program {
	for _, p := range n.programs {
		if p.name == name {
			return p
		}
	}
	return nil
}

// clients are the programs that make traffic.
func (l *lab) clients() (all []*program) {
	for _, n := range l.nodes {
		for _, p := range n.programs {
			if p.name == roleClient || p.name == "python" {
				all = append(all, p)
			}
		}
	}
	return all
}

// status asks a node.
func (l *lab) status(n *node) (*control.Status, error) { return testnode.Status(l.dir, n.id) }

// linkTime bounds the wait for the links of a node that has been started.
const linkTime = 30 * time.Second

// linked waits until a node has a link to every other node that is listed.
func (l *lab) linked(n *node) error {
	var last error
	for end := time.Now().Add(linkTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		s, err := l.status(n)
		if last = err; err != nil {
			continue
		}
		nodes, err := control.Nodes(l.dir)
		if last = err; err != nil {
			continue
		}
		up := testnode.Linked(s)
		if up == len(s.Peers) && up == len(nodes)-1 {
			return nil
		}
		last = fmt.Errorf("%d of %d other nodes are linked: %+v", up, len(nodes)-1, s.Peers)
	}
	return fmt.Errorf("node %d, %v after its start: %w", n.id, linkTime, last)
}

// ip runs ip(8) in the node's namespace.
func (n *node) ip(args ...string) error {
	cmd := exec.Command("ip", args...)
	var buf strings.Builder
	cmd.Stdout, cmd.Stderr = &buf, &buf
	if err := n.ns.Run(cmd); err != nil {
		return fmt.Errorf("node %d: ip %s: %w: %s", n.id, strings.Join(args, " "), err, buf.String())
	}
	return nil
}

// close ends all programs and daemons, and says what they have left.
func (l *lab) close() (leaks []string) {
	for _, n := range l.nodes {
		for _, p := range n.programs {
			if err := p.end(unix.SIGKILL); err != nil {
				l.fail("%v", err)
			}
		}
	}
	for _, n := range l.nodes {
		if err := n.daemon.end(unix.SIGTERM); err != nil {
			l.fail("%v", err)
		}
	}
	for _, n := range l.nodes {
		leaks = append(leaks, n.left()...)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, os.ErrNotExist) {
		entries, _ := filepath.Glob(filepath.Join(l.dir, "*"))
		leaks = append(leaks, fmt.Sprintf("the fabric's directory is still there: %q", entries))
	}
	return leaks
}

// left returns what is left of a node whose programs have ended.
func (n *node) left() (leaks []string) {
	space, err := os.Stat(n.ns.Path())
	if err != nil {
		return []string{err.Error()}
	}
	for wait := time.Millisecond; wait < 4*time.Second; wait *= 2 {
		leaks = nil
		places, _ := filepath.Glob("/proc/[0-9]*/ns/net")
		self := fmt.Sprintf("/proc/%d/", os.Getpid())
		for _, place := range places {
			if at, err := os.Stat(place); err == nil && os.SameFile(space, at) && !strings.HasPrefix(place, self) {
				name, _ := os.ReadFile(filepath.Join(place, "../../comm"))
				leaks = append(leaks, fmt.Sprintf("process %s in the namespace of node %d: %s", strings.Split(place, "/")[2], n.id, strings.TrimSpace(string(name))))
			}
		}
		if err := n.ns.Do(func() error {
			if _, err := net.InterfaceByName(ifname); err == nil {
				leaks = append(leaks, fmt.Sprintf("%s of node %d", ifname, n.id))
			}
			return nil
		}); err != nil {
			leaks = append(leaks, err.Error())
		}
		sockets, _ := filepath.Glob(fmt.Sprintf("/run/exn/ds/%d.*", space.Sys().(*syscall.Stat_t).Ino))
		leaks = append(leaks, sockets...)
		if len(leaks) == 0 {
			break
		}
		time.Sleep(wait)
	}
	return leaks
}

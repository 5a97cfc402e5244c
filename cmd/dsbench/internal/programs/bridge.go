package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/internal/netns"
	"exnet/node/control"
)

const loopback = "127.0.0.1"

// site is where a program is: on a bridge, in a namespace of its own.
type site int

const (
	clientSite site = iota
	serverSite      // of the last server: the one behind a proxy
	proxySite
	sites
)

// bridgeAddr is a site's on the bridge.
func (s site) bridgeAddr() string { return fmt.Sprintf("172.30.0.%d", s+2) }

// bridge is a namespace with a bridge, those of the programs, joined to it by veth pairs, and what
// measures their CPU time.
type bridge struct {
	hub    *netns.NS
	sites  [sites]*netns.NS
	asking []*exec.Cmd      // a program in each site that asks for direct sockets, as a container's first does
	groups [2]*cgroup       // of the programs of each path
	agent  *measure.Program // nil: none runs
}

// newBridge makes all of it. It fails if an agent runs on the host: then there is no control
// without one.
func newBridge(ctx context.Context) (b *bridge, err error) {
	all, err := control.Brokers()
	if err != nil {
		return nil, err
	}
	if n := countServed(all); n > 0 {
		return nil, errors.New("exn-tun agent runs on this host: end it, as the control is without one")
	}
	b = &bridge{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
			b = nil
		}
	}()
	for i, path := range []string{pathTCP, pathDirect} {
		if b.groups[i], err = newCgroup(path); err != nil {
			return b, err
		}
	}
	if b.hub, err = netns.New(); err != nil {
		return b, err
	}
	if err := b.runIP(ctx, b.hub, "link add br0 type bridge", "link set br0 up"); err != nil {
		return b, err
	}
	for i := range sites {
		n, err := netns.New()
		if err != nil {
			return b, err
		}
		b.sites[i] = n
		port := fmt.Sprint("v", int(i))
		if err := errors.Join(
			b.runIP(ctx, b.hub, "link add "+port+" type veth peer name eth0 netns "+n.Path(), "link set "+port+" master br0 up"),
			b.runIP(ctx, n, "link set lo up", "addr add "+i.bridgeAddr()+"/24 dev eth0", "link set eth0 up")); err != nil {
			return b, err
		}
		// Connections of one request leave ports behind, which wait for a minute.
		if err := errors.Join(n.SetSysctl("ipv4/tcp_tw_reuse", "1"), n.SetSysctl("ipv4/ip_local_port_range", "10240 65535")); err != nil {
			return b, err
		}
		asks := exec.CommandContext(ctx, "sleep", "infinity")
		asks.Env = append(os.Environ(), "EXNET=1")
		if err := n.Start(asks); err != nil {
			return b, err
		}
		b.asking = append(b.asking, asks)
	}
	return b, nil
}

// runIP runs ip(8) in a namespace.
func (b *bridge) runIP(ctx context.Context, n *netns.NS, commands ...string) error {
	for _, c := range commands {
		if _, _, err := measure.Output(ctx, exec.CommandContext(ctx, "ip", strings.Fields(c)...), n.Start); err != nil {
			return fmt.Errorf("ip %s: %w", c, err)
		}
	}
	return nil
}

// countServed counts the namespaces that an agent serves.
func countServed(all []*control.Sockets) (n int) {
	for _, s := range all {
		if s.Direct != nil {
			n++
		}
	}
	return n
}

// startAgent starts exn-tun agent, and waits until it serves all of the bridge's namespaces and its
// own.
func (b *bridge) startAgent(ctx context.Context, exnTun string, group *cgroup) (err error) {
	cmd := exec.CommandContext(ctx, exnTun, "agent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, UseCgroupFD: true, CgroupFD: group.fd()}
	if b.agent, err = measure.Start("exn-tun agent", cmd, (*exec.Cmd).Start); err != nil {
		return err
	}
	return measure.Await(ctx, "exn-tun agent serves the namespaces", func() error {
		all, err := control.Brokers()
		if n := countServed(all); err == nil && n <= int(sites) {
			err = fmt.Errorf("it serves %d of them and its own", n)
		}
		return err
	}, b.agent)
}

func (b *bridge) stopAgent() error {
	agent := b.agent
	b.agent = nil
	return agent.Stop()
}

func (b *bridge) close() error {
	err := b.stopAgent()
	for _, asks := range b.asking {
		_ = errors.Join(asks.Process.Kill(), asks.Wait()) // killed
	}
	for _, n := range append(b.sites[:], b.hub) {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	for _, g := range b.groups {
		err = errors.Join(err, g.close())
	}
	return err
}

// runInSite runs f where a site is.
func (e *end) runInSite(at site, f func() error) error {
	if e.bridge == nil {
		return f()
	}
	return e.bridge.sites[at].Do(f)
}

// launchAt returns what starts a program at a site, in the group of its path.
func (e *end) launchAt(at site) func(*exec.Cmd) error {
	if e.bridge == nil {
		return (*exec.Cmd).Start
	}
	return func(cmd *exec.Cmd) error {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, e.group.fd()
		return e.bridge.sites[at].Start(cmd)
	}
}

// cgroup is a group of processes whose CPU time is counted, that of those which have ended
// included. A nil one counts nothing.
type cgroup struct{ dir *os.File }

// newCgroup makes one at the root of cgroup2.
func newCgroup(name string) (*cgroup, error) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(root, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		path := filepath.Join(root, fmt.Sprintf("dsbench-%d-%s", os.Getpid(), name))
		if err := os.Mkdir(path, 0o755); err != nil {
			return nil, err
		}
		dir, err := os.Open(path)
		if err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
		return &cgroup{dir}, nil
	}
	return nil, errors.New("CPU times are taken by cgroup2, which is not mounted in /sys/fs/cgroup")
}

func (g *cgroup) fd() int { return int(g.dir.Fd()) }

// cpuTime is the CPU time that the group has taken.
func (g *cgroup) cpuTime() (time.Duration, error) {
	if g == nil {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(g.dir.Name(), "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if us, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(us), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat has no usage_usec", g.dir.Name())
}

// close kills what is left in the group and removes it.
func (g *cgroup) close() error {
	if g == nil {
		return nil
	}
	path := g.dir.Name()
	err := errors.Join(os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0), g.dir.Close())
	for end := time.Now().Add(measure.GraceTime); ; time.Sleep(10 * time.Millisecond) {
		removed := os.Remove(path)
		if removed == nil || time.Now().After(end) { // busy while processes end
			return errors.Join(err, removed)
		}
	}
}

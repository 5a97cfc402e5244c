package exnrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/internal/child"
	"exnet/internal/tempdir"
	"exnet/node/rpc"
	"exnet/ports"
)

func init() { runLibfabric = runFabric }

// runFabric runs the program of o beside a node of its own, which has ports for programs of
// libfabric and nothing else: neither an interface nor root is needed. The node ends with the
// program.
func runFabric(o options, m messages) error {
	p, err := FindProgram(o.argv[0])
	if err != nil {
		return programError{child.StartError(err)}
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH)
	defer signal.Stop(signals)
	dir, err := tempdir.New("exn-run")
	if err != nil {
		return err
	}
	n, err := startPortNode(filepath.Join(dir, "ports"), m.warnUser)
	if err != nil {
		return errors.Join(fmt.Errorf("--libfabric: %w", err), tempdir.Remove(dir))
	}
	state, err := runChild(p.Path, o.argv, withVariables(os.Environ(), fabricVariables(n.path, os.LookupEnv)), signals, func() {})
	if err = errors.Join(err, n.close(), tempdir.Remove(dir)); err != nil {
		return err
	}
	return endAs(state)
}

// fabricVariables returns what makes libfabric, and Open MPI by it, use the node whose socket is
// path. What the user has set for Open MPI remains.
func fabricVariables(path string, lookup func(string) (string, bool)) []string {
	vars := []string{"EXN_PORTS=" + path, "FI_EXNET_IFACE=lo"}
	for _, v := range [][2]string{
		{"OMPI_MCA_pml", "cm"}, {"OMPI_MCA_mtl", "ofi"}, {"OMPI_MCA_mtl_ofi_provider_include", "exnet;ofi_rxm"},
	} {
		if _, set := lookup(v[0]); !set {
			vars = append(vars, v[0]+"="+v[1])
		}
	}
	return vars
}

// portNode is a node that has ports only.
type portNode struct {
	path       string
	server     *ports.Server
	ln         *net.UnixListener
	end        context.CancelFunc
	goroutines sync.WaitGroup
}

// startPortNode starts a node whose socket is path. Its user may have all ports. warn is told what
// a process did wrong.
func startPortNode(path string, warn func(string, ...any)) (*portNode, error) {
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	n := &portNode{path: path, server: ports.New(ports.Config{Node: 1, PerUser: 2 * fabric.VPIDs}), ln: ln, end: end}
	failed := func(err error) { warn("the node's ports: %v", err) }
	n.goroutines.Go(func() {
		for conn := range rpc.Accept(ctx, ln, time.Millisecond, failed) {
			n.goroutines.Go(func() {
				if err := n.server.Process(conn); err != nil && !errors.Is(err, net.ErrClosed) {
					failed(err)
				}
			})
		}
	})
	return n, nil
}

func (n *portNode) close() error {
	n.end()
	err := n.ln.Close()
	n.server.Close()
	n.goroutines.Wait()
	return err
}

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/internal/daemon"
	"exnet/internal/hostnet"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/study/pattern"
)

// mpiLab is nodes of a fabric on which mpirun can start ranks, by dsbench's exn-rsh.
type mpiLab struct {
	dir    string
	spaces []*netns.NS
	nodes  []string // addresses
}

func newMPILab(t *testing.T, n int) *mpiLab {
	t.Helper()
	l := &mpiLab{dir: t.TempDir()}
	var daemons []*daemon.Daemon
	for i := range n {
		ns := netnstest.New(t)
		conn, err := hostnet.Open(ns)
		if err != nil {
			t.Fatal(err)
		}
		err = conn.LoopbackUp()
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		addr := fmt.Sprintf("10.2.0.%d", 1+i)
		l.spaces, l.nodes = append(l.spaces, ns), append(l.nodes, addr)
		daemons = append(daemons, startDaemon(t, l.dir, ns, addr+"/24"))
	}
	eventually(t, func() error {
		for i, d := range daemons {
			s, err := d.Status()
			if err != nil {
				return err
			}
			up := 0
			for _, p := range s.Peers {
				if p.State == "up" {
					up++
				}
			}
			if up != n-1 {
				return fmt.Errorf("node %d has %d peers", s.Node, up)
			}
			if err := l.spaces[i].Do(func() error { _, err := client.Find(t.Context()); return err }); err != nil {
				return err
			}
		}
		return nil
	})
	return l
}

// mpi is an implementation, with the ranks that it is given for each node.
type mpi struct {
	name, compiler string
	nodes, ranks   int
	argv           func(rsh string, nodes []string) []string
}

var mpis = []mpi{
	{"openmpi", "mpicc.openmpi", 3, 4, func(rsh string, nodes []string) []string {
		return []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--map-by", "node", "-n", "4", "--host", strings.Join(nodes, ":2,") + ":2",
			"--mca", "plm_rsh_agent", rsh, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
			"--mca", "btl_tcp_if_include", "exn0", "--mca", "oob_tcp_if_include", "exn0"}
	}},
	{"mpich", "mpicc.mpich", 2, 2, func(rsh string, nodes []string) []string {
		return []string{"env", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=exn0", "mpirun.mpich", "-launcher", "ssh", "-launcher-exec", rsh,
			"-iface", "exn0", "-hosts", strings.Join(nodes, ","), "-n", "2"}
	}},
}

// finalizeTime is how long MPICH may take to end when all is done.
const finalizeTime = 5 * time.Second

// start runs the kernels of testdata/mpi, which check their results, under more. ended is
// false only of MPICH, which may hang in MPI_Finalize, over any TCP (docs/mpi.md): then it
// is told to end.
func (m mpi) start(t *testing.T, l *mpiLab, kernels string, more ...string) (ended bool) {
	t.Helper()
	rsh, err := filepath.Abs("../internal/dsbench/mpi/source/exn-rsh")
	if err != nil {
		t.Fatal(err)
	}
	nodes := l.nodes[:m.nodes]
	var known []string
	for i, n := range nodes {
		known = append(known, n+"="+l.spaces[i].Path())
	}
	argv := append([]string{"env", "EXN_NODES=" + strings.Join(known, " "), rsh, nodes[0]}, m.argv(rsh, nodes)...)
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	p := startIn(t, here, nil, append(append(argv, more...), kernels)...)
	for _, k := range []string{"cg", "allreduce", "alltoall", "halo"} {
		p.says(t, k+": right")
	}
	if m.name != "mpich" {
		p.wait(t)
		return true
	}
	select {
	case <-p.done:
		p.wait(t)
		return true
	case <-time.After(finalizeTime):
	}
	if err := unix.Kill(-p.cmd.Process.Pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
	<-p.done
	return false
}

// Ranks of MPI in the namespaces of several nodes: over exn0, and on direct sockets, of
// which exn-run makes a profile.
func TestRootMPI(t *testing.T) {
	needRun(t, "mpirun.openmpi", "mpicc.openmpi", "mpirun.mpich", "mpicc.mpich")
	checkLeaks(t)
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	l := newMPILab(t, 3)
	for _, m := range mpis {
		t.Run(m.name, func(t *testing.T) {
			dir := sharedDir(t)
			kernels := filepath.Join(dir, "kernels")
			cc := exec.CommandContext(t.Context(), m.compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", kernels, "testdata/mpi/kernels.c", "-lm")
			if out, err := cc.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Run("sockets=tcp", func(t *testing.T) { m.start(t, l, kernels) })
			t.Run("sockets=direct", func(t *testing.T) {
				profile := filepath.Join(dir, "profile")
				argv := []string{exnRun, "--dir", l.dir, "--profile", profile}
				if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" {
					argv = append(argv, "--library", library)
				}
				if !m.start(t, l, kernels, argv...) {
					t.Log("MPI_Finalize hung: no profile to check")
					return
				}
				m.checkProfile(t, profile)
			})
		})
	}
}

// checkProfile looks for all ranks in a profile, on their nodes, and for the bytes of the
// kernels between them.
func (m mpi) checkProfile(t *testing.T, dir string) {
	t.Helper()
	var all []pattern.Process
	eventually(t, func() (err error) { // the last exn-run may end after mpirun
		if all, err = pattern.ReadProcesses(filepath.Join(dir, "profile.json")); err == nil && len(all) != m.ranks {
			err = errors.New(strconv.Itoa(len(all)) + " ranks in the profile")
		}
		return err
	})
	nodes := make(map[int]int)
	for i, p := range all {
		if p.Node == nil {
			t.Fatalf("rank %d is on no node: %s", i, p.Name)
		}
		nodes[*p.Node]++
		messages, bytes := uint64(0), uint64(0)
		for j, n := range p.TxBytes {
			if n != all[j].RxBytes[i] {
				t.Errorf("%d bytes from %d to %d, of which %d came", n, i, j, all[j].RxBytes[i])
			}
			bytes += n
			messages += p.TxMessages[j]
		}
		// All to all alone is 37,449 bytes to each; messages are counted where it was direct.
		if bytes < 37449*uint64(m.ranks-1) || messages == 0 {
			t.Errorf("rank %d has sent %d bytes, and %d messages direct", i, bytes, messages)
		}
	}
	if len(nodes) != m.nodes {
		t.Errorf("ranks on nodes %v", nodes)
	}
}

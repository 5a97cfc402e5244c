package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/client"
	"exnet/fabric/pattern"
	"exnet/fabric/pattern/pfprof"
	"exnet/internal/longtest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/daemon"
	"exnet/test/testlab"
)

// mpiLab is nodes of a fabric on which mpirun can start ranks, by dsbench's exn-rsh.
type mpiLab struct {
	dir    string
	spaces []*netns.NS
	nodes  []string // addresses
	// daemons are the nodes'.
	daemons []*daemon.Daemon
}

// direct returns how many processes of a program have a direct connection.
func (l *mpiLab) direct(program string) int {
	have := make(map[int]bool)
	for _, d := range l.daemons {
		for _, c := range d.Sockets().Connections {
			if c.Program == program && c.Mode == "direct" {
				have[c.PID] = true
			}
		}
	}
	return len(have)
}

func newMPILab(t *testing.T, n int) *mpiLab {
	t.Helper()
	l := &mpiLab{dir: t.TempDir()}
	for i := range n {
		ns := testlab.LoopbackNS(t)
		addr := fmt.Sprintf("10.2.0.%d", 1+i)
		l.spaces, l.nodes = append(l.spaces, ns), append(l.nodes, addr)
		l.daemons = append(l.daemons, startDaemon(t, l.dir, ns, addr+"/24"))
	}
	eventually(t, func() error {
		for i, d := range l.daemons {
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
			if err := l.spaces[i].Do(func() error { _, err := client.Find(); return err }); err != nil {
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

// MPICH may hang over any TCP, in an exchange or in MPI_Finalize (docs/mpi.md): kernelTime is
// how long its kernels may take, finalizeTime its end, and mpichTries how often it is begun.
const (
	kernelTime   = 30 * time.Second
	finalizeTime = 5 * time.Second
	mpichTries   = 6
)

// start runs the kernels of testdata/mpi, which check their results, in dir, by argv after the
// launcher's. With direct they begin when all ranks have a direct connection. ended is false
// only of MPICH, which was told to end because it hung in MPI_Finalize; where it hung before,
// it is begun again, in a new dir.
func (m mpi) start(t *testing.T, l *mpiLab, direct bool, argv func(dir string) []string) (dir string, ended bool) {
	t.Helper()
	tries, limit := 1, hangTime
	if m.name == "mpich" {
		tries, limit = mpichTries, kernelTime
	}
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	for range tries {
		dir := sharedDir(t)
		p := m.launch(t, here, l, argv(dir))
		solved := p.ends(limit, func() bool { return !direct || l.direct("kernels") == m.ranks })
		if err := os.WriteFile(filepath.Join(dir, "begin"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		solved = solved && p.ends(limit, func() bool { return strings.Count(p.out.String(), ": right") == len(kernels) })
		if solved {
			for _, k := range kernels {
				p.says(t, k+": right")
			}
			if tries == 1 || p.ends(finalizeTime, func() bool { return false }) {
				p.wait(t)
				return dir, true
			}
		}
		if err := unix.Kill(-p.cmd.Process.Pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Error(err)
		}
		<-p.done
		if solved {
			return dir, false
		}
		t.Logf("%s hung\n%s", m.name, &p.out)
	}
	t.Fatalf("%s hung each time", m.name)
	return "", false
}

// kernels are those of testdata/mpi.
var kernels = []string{"cg", "allreduce", "alltoall", "halo"}

// launch starts argv on the nodes, by the launcher.
func (m mpi) launch(t *testing.T, here *netns.NS, l *mpiLab, argv []string) *process {
	t.Helper()
	rsh, err := filepath.Abs("../cmd/dsbench/internal/mpi/source/exn-rsh")
	if err != nil {
		t.Fatal(err)
	}
	nodes := l.nodes[:m.nodes]
	var known []string
	for i, n := range nodes {
		known = append(known, n+"="+l.spaces[i].Path())
	}
	return startIn(t, here, nil, slices.Concat([]string{"env", "EXN_NODES=" + strings.Join(known, " "), rsh, nodes[0]}, m.argv(rsh, nodes), argv)...)
}

// Ranks of MPI in the namespaces of several nodes: over exn0, and on direct sockets, of
// which exn-run makes a profile.
func TestRootMPI(t *testing.T) {
	longtest.Skip(t)
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
			program := filepath.Join(dir, "kernels")
			cc := exec.CommandContext(t.Context(), m.compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/mpi/kernels.c", "-lm")
			if out, err := cc.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Run("sockets=tcp", func(t *testing.T) {
				m.start(t, l, false, func(string) []string { return []string{program} })
			})
			t.Run("sockets=direct", func(t *testing.T) {
				dir, ended := m.start(t, l, true, func(dir string) []string {
					argv := []string{exnRun, "--dir", l.dir, "--profile", filepath.Join(dir, "profile")}
					if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" {
						argv = append(argv, "--library", library)
					}
					return append(argv, program, "--until", filepath.Join(dir, "begin"))
				})
				if !ended {
					t.Log("MPI_Finalize hung: no profile to check")
					return
				}
				m.checkProfile(t, filepath.Join(dir, "profile"))
			})
		})
	}
}

// checkProfile looks for all ranks in a profile, on their nodes, and for the bytes of the
// kernels between them.
func (m mpi) checkProfile(t *testing.T, dir string) {
	t.Helper()
	var all []pfprof.Process
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

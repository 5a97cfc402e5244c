package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
	"exnet/test/testlab/testnode"
)

// fabricOf builds the libfabric provider, and returns the variable by which libfabric finds it.
func fabricOf(t *testing.T) string {
	t.Helper()
	dir := sharedDir(t)
	if out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", "../ports/ofi", "BUILD="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return "FI_PROVIDER_PATH=" + dir
}

// pingpong starts fi_pingpong on two nodes, the client when the server listens.
func (l *mpiLab) pingpong(t *testing.T, env string, argv ...string) (server, client *process) {
	t.Helper()
	argv = append([]string{"env", env, "FI_TCP_IFACE=exn0", "fi_pingpong"}, argv...)
	server = startIn(t, l.spaces[0], nil, argv...)
	eventually(t, func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", server.cmd.Process.Pid))
		if err == nil && !strings.Contains(string(b), ":B9E8 00000000:0000 0A") { // its port, 47592
			err = fmt.Errorf("the server does not listen yet\n%s", &server.out)
		}
		return err
	})
	return server, startIn(t, l.spaces[1], nil, append(argv, l.nodes[0])...)
}

// Programs for libfabric run on the NIC of two nodes: Debian's fi_info and fi_pingpong, with and
// without ofi_rxm, and Open MPI, whose kernels check their results. A peer that is killed is an
// error at the other end.
func TestRootLibfabric(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "make", "fi_info", "mpirun.openmpi", "mpicc.openmpi")
	checkLeaks(t)
	l := newMPILab(t, 2)
	env := fabricOf(t)
	out, err := runIn(t, l.spaces[0], nil, "env", env, "fi_info", "-p", "exnet", "-t", "FI_EP_MSG", "-v")
	if err != nil || !strings.Contains(out, "fi_sockaddr_in://10.2.0.1:0") || !strings.Contains(out, "name: exn0") {
		t.Errorf("fi_info: %v\n%s", err, out)
	}
	sent := func() uint64 {
		n := uint64(0)
		for _, d := range l.daemons {
			s, err := d.Status()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range s.Counters {
				if c.Name == "ports.velo_sent" {
					n += c.Value
				}
			}
		}
		return n
	}
	for _, argv := range [][]string{
		{"-p", "exnet", "-e", "msg", "-c", "-I", "50"},
		{"-p", "exnet;ofi_rxm", "-e", "rdm", "-c", "-I", "50"},
	} {
		t.Run(argv[1], func(t *testing.T) {
			before := sent()
			server, client := l.pingpong(t, env, argv...)
			client.wait(t)
			server.wait(t)
			if n := sent() - before; n < 2*50*6 { // of six sizes
				t.Errorf("%d messages went through the NIC", n)
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		server, client := l.pingpong(t, env, "-p", "exnet", "-e", "msg", "-I", "1000000000", "-S", "64")
		before := sent()
		eventually(t, func() error {
			if sent() < before+1000 {
				return fmt.Errorf("no messages yet\n%s", &client.out)
			}
			return nil
		})
		if err := unix.Kill(-server.cmd.Process.Pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-client.done:
			client.says(t, "connection abort")
		case <-time.After(hangTime):
			t.Error("the client does not see that its server was killed")
		}
	})
	t.Run("openmpi", func(t *testing.T) { l.kernelsByLibfabric(t, env, openMPI(env, 4)) })
	t.Run("mixed", func(t *testing.T) { l.mixedByLibfabric(t, env, 4) })
	t.Run("mpich", func(t *testing.T) { l.kernelsByLibfabric(t, env, mpichOFI(t, env)) })
}

// kernelsByLibfabric runs the kernels on two nodes, with the provider.
func (l *mpiLab) kernelsByLibfabric(t *testing.T, env string, m mpi) {
	t.Helper()
	program := filepath.Join(sharedDir(t), "kernels")
	cc := exec.CommandContext(t.Context(), m.compiler, "-O2", "-o", program, "testdata/mpi/kernels.c", "-lm")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.start(t, l, false, func(string) []string { return []string{program} })
}

// mixedByLibfabric runs ranks of Open MPI on two nodes, which communicate for two seconds in an
// order and with sizes of chance: once with windows, once with threads.
func (l *mpiLab) mixedByLibfabric(t *testing.T, env string, ranks int) {
	t.Helper()
	program := filepath.Join(sharedDir(t), "mixed")
	cc := exec.CommandContext(t.Context(), "mpicc.openmpi", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, "testdata/mpi/mixed.c")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	for _, kernels := range []string{"vhtrw", "vhtrm"} {
		m := openMPI(env, ranks)
		p := m.launch(t, here, l, []string{"--mca", "osc", "pt2pt", program, "2", "1", kernels})
		select {
		case <-p.done:
		case <-time.After(hangTime):
			t.Fatalf("the ranks do not end\n%s", &p.out)
		}
		if p.err != nil || !strings.Contains(p.out.String(), ", right") {
			t.Errorf("%s: %v\n%s", kernels, p.err, &p.out)
		}
	}
}

// openMPI is Open MPI's ranks on two nodes with the provider, which env names.
func openMPI(env string, ranks int) mpi { return openMPIBy("exnet", env, ranks) }

// openMPIBy is openMPI with a provider of libfabric.
func openMPIBy(provider, env string, ranks int) mpi {
	return mpi{name: "openmpi", compiler: "mpicc.openmpi", nodes: 2, ranks: ranks, argv: func(rsh string, nodes []string) []string {
		each := ":" + strconv.Itoa((ranks+1)/2)
		return []string{env, "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--map-by", "node", "-n", strconv.Itoa(ranks),
			"--host", strings.Join(nodes, each+",") + each, "--mca", "plm_rsh_agent", rsh, "--mca", "oob_tcp_if_include", "exn0",
			"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "'" + provider + ";ofi_rxm'", "-x", "FI_PROVIDER_PATH",
			"-x", "FI_TCP_IFACE=exn0"}
	}}
}

var mpich = flag.String("mpich", "", "`DIR` where an MPICH is installed that was built with --with-device=ch4:ofi, as Debian's is not: its ranks, with the libfabric provider")

// mpichOFI is two ranks of MPICH on two nodes with the provider.
func mpichOFI(t *testing.T, env string) mpi {
	t.Helper()
	if *mpich == "" {
		t.Skip("it wants an MPICH for libfabric: name its directory by -mpich")
	}
	bin := filepath.Join(*mpich, "bin")
	return mpi{name: "mpich for libfabric", compiler: filepath.Join(bin, "mpicc"), nodes: 2, ranks: 2, argv: func(rsh string, nodes []string) []string {
		return []string{env, "FI_PROVIDER='exnet;ofi_rxm'", filepath.Join(bin, "mpirun"), "-launcher", "ssh", "-launcher-exec", rsh,
			"-iface", "exn0", "-hosts", strings.Join(nodes, ","), "-n", "2"}
	}}
}

// The provider's peers may be on another host: then the nodes carry its messages over their link.
func TestRootLibfabricHosts(t *testing.T) {
	longtest.Skip(t)
	needRun(t, "make", "fi_pingpong", "mpirun.openmpi", "mpicc.openmpi")
	checkLeaks(t)
	c := newCarried(t, true)
	l, env := &mpiLab{spaces: c.spaces[:], nodes: []string{"10.2.0.1", "10.2.0.2"}}, fabricOf(t)
	for _, argv := range [][]string{
		{"-p", "exnet", "-e", "msg", "-c", "-I", "5"},
		{"-p", "exnet;ofi_rxm", "-e", "rdm", "-c", "-I", "5"},
	} {
		server, client := l.pingpong(t, env, argv...)
		client.wait(t)
		server.wait(t)
	}
	t.Run("openmpi", func(t *testing.T) { l.kernelsByLibfabric(t, env, openMPI(env, 2)) })
	t.Run("mixed", func(t *testing.T) { l.mixedByLibfabric(t, env, 2) })
	t.Run("mpich", func(t *testing.T) { l.kernelsByLibfabric(t, env, mpichOFI(t, env)) })
}

// Eight ranks with three threads each talk at once, on fewer CPUs than that, while each forks a
// child. Then one rank is killed: the others end, with mpirun, and no node keeps a port of theirs.
func TestRootLibfabricRanks(t *testing.T) {
	longtest.Nightly(t)
	needRun(t, "make", "mpirun.openmpi", "mpicc.openmpi")
	checkLeaks(t)
	l, env := newMPILab(t, 2), fabricOf(t)
	program := filepath.Join(sharedDir(t), "ranks")
	cc := exec.CommandContext(t.Context(), "mpicc.openmpi", "-O2", "-pthread", "-o", program, "testdata/mpi/ranks.c")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := mpi{name: "openmpi", nodes: 2, ranks: 8, argv: func(rsh string, nodes []string) []string {
		return []string{env, "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--map-by", "node", "-n", "8",
			"--host", strings.Join(nodes, ":4,") + ":4", "--mca", "plm_rsh_agent", rsh, "--mca", "oob_tcp_if_include", "exn0",
			"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "'exnet;ofi_rxm'", "-x", "FI_PROVIDER_PATH"}
	}}
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	run := func(args ...string) (string, error) {
		p := m.launch(t, here, l, append([]string{program}, args...))
		select {
		case <-p.done:
		case <-time.After(hangTime):
			t.Fatalf("the ranks do not end\n%s", &p.out)
		}
		return p.out.String(), p.err
	}
	if out, err := run(); err != nil || !strings.Contains(out, "threads of 8 ranks: right") {
		t.Fatalf("%v\n%s", err, out)
	}
	begun := time.Now()
	var out string
	out, err = run("kill")
	t.Logf("with a rank that is killed: %v", time.Since(begun))
	if err == nil || !strings.Contains(out, "threads of 8 ranks: right") || strings.Contains(out, "got a message") {
		t.Errorf("a rank is killed: %v\n%s", err, out)
	}
	eventually(t, func() error {
		for i := range l.daemons {
			p, err := testnode.Ports(l.dir, 1+i)
			if err != nil {
				return err
			}
			if len(p.Ports) > 0 {
				return fmt.Errorf("ports stay open: %+v", p.Ports)
			}
		}
		return nil
	})
}

// Where no node is up, one command brings one for a program: two ranks of Open MPI take it without
// a flag of theirs. With no provider they would not start: nothing else is allowed them.
func TestRootLibfabricLoopback(t *testing.T) {
	needRun(t, "make", "mpirun.openmpi", "mpicc.openmpi")
	checkLeaks(t)
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	ns, env := testlab.LoopbackNS(t), fabricOf(t)
	program := filepath.Join(sharedDir(t), "kernels")
	cc := exec.CommandContext(t.Context(), "mpicc.openmpi", "-O2", "-o", program, "testdata/mpi/kernels.c", "-lm")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := runIn(t, ns, nil, "env", env, exnRun, "--libfabric", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", program)
	if err != nil || strings.Count(out, ": right") != len(kernels) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = runIn(t, ns, nil, "env", env, exnRun, "--libfabric", "sh", "-c", "fi_info -p exnet; exit 7")
	if err == nil || !strings.Contains(err.Error(), "status 7") || !strings.Contains(out, "domain: lo") || strings.Contains(out, "exn-run:") {
		t.Errorf("%v\n%s", err, out)
	}
}

package exntun

import (
	"errors"
	"exnet/internal/cli"
	"exnet/internal/clitest"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestHelp(t *testing.T) {
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"help.txt", []string{"-h"}},
		{"help.txt", []string{"--help"}},
		{"help.txt", []string{"help"}},
		{"help_demo.txt", []string{"demo", "-h"}},
		{"help_demo.txt", []string{"demo", "--nodes", "3", "--help"}},
		{"help_demo.txt", []string{"help", "demo"}},
	} {
		status, stdout, stderr := run(t.Context(), c.args...)
		if status != cli.ExitOK || stderr != "" {
			t.Errorf("%q: status %d, %q on standard error", c.args, status, stderr)
		}
		golden(t, c.golden, stdout)
		fits(t, stdout)
	}
}

func TestNoArguments(t *testing.T) {
	status, stdout, stderr := run(t.Context())
	if status != cli.ExitUsage || stdout != "" {
		t.Errorf("status %d, %q on standard output; want %d and nothing", status, stdout, cli.ExitUsage)
	}
	golden(t, "help.txt", stderr)
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		status, stdout, stderr := run(t.Context(), arg)
		if status != cli.ExitOK || stderr != "" {
			t.Errorf("%s: status %d, %q on standard error", arg, status, stderr)
		}
		if !strings.HasPrefix(stdout, "exn-tun ") {
			t.Errorf("%s printed %q", arg, stdout)
		}
		oneLineOf(t, stdout, " go1.")
	}
}

// TestUsageErrors has what users get wrong: one line that says what to do.
func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"dmeo --serve x", `unknown command "dmeo": did you mean demo?`},
		{"key sgin --zzz", `unknown command "sgin": did you mean sign?`},
		{"dmeo", `unknown command "dmeo": did you mean demo?`},
		{"--fabric x", "there is no flag --fabric"},
		{"xyzzy", `unknown command "xyzzy": choose from demo, agent, device-plugin, attach, cdi, up, down, status, fabrics, topo, profile, route, set, registers, direct, explain, top, capture, check, key, doctor, cluster, lease, lnet-selftest, version, completion`},
		{"help dmeo", `unknown command "dmeo": did you mean demo?`},
		{"demo --no-fast", "did you mean --no-fast-path?"},
		{"demo -nodes 2", "there is no flag -nodes: did you mean --nodes?"},
		{"demo --log-format xml", `--log-format: "xml": use text, json`},
		{"version please", `unexpected argument "please"`},
		{"explain", "PID is missing (see"},
		{"explain 1 2", `unexpected argument "2"`},
		{"attach", "PID is missing"},
		{"device-plugin", "DIR is missing"},
		{"direct set", "FILE is missing"},
		{"lease grant", "SIZE is missing"},
		{"lease list 1", `unexpected argument "1"`},
		{"lease revoke 1 2", `unexpected argument "2"`},
		{"registers 1 2", `unexpected argument "2"`},
		{"demo --speed 9", "there is no flag --speed (see"},
		{"demo --nodes", "--nodes needs a value"},
		{"demo --nodes 1", "--nodes: use a number from 2 to 254"},
		{"demo --nodes 255", "--nodes: use a number from 2 to 254"},
		{"demo --nodes two", "--nodes: use a number from 2 to 254"},
		{"demo --mtu 1279", "--mtu: 1279 is not between 1280 and 65535 bytes"},
		{"demo --mtu 64k", "--mtu: 64k is not between"},
		{"demo --mtu 1e3", `--mtu: "1e3" is not a size: write bytes`},
		{"demo --eager-threshold 119", "--eager-threshold: 119 is not between 120 and 65549 bytes"},
		{"demo --eager-threshold 65550", "--eager-threshold: 65550 is not between 120 and 65549 bytes"},
		{"demo --mtu 1500 --eager-threshold 1515", "more than a frame has at --mtu 1500: use 120 to 1514"},
		{"demo --velo-budget 0", "--velo-budget: use a number from 1 to 32767"},
		{"demo --rma-budget 32768", "--rma-budget: use a number from 1 to 32767"},
		{"demo --mac-prefix 01:00:00:00", "is a multicast address; use an even first octet"},
		{"demo --mac-prefix 00:11:22:33", "is not locally administered"},
		{"demo --mac-prefix 2e:87:04", `: --mac-prefix: "2e:87:04": use four octets such as 2e:87:04:07`},
		{"up --direct shm", `: --direct: "shm": use fabric, fabric:PORT`},
		{"demo --congestion ../x", "--congestion: name one of sysctl net.ipv4.tcp_available_congestion_control"},
		{"demo --faults loss=1", `--faults: "loss"; use seed, drop, corrupt, duplicate, reorder, delay or jitter`},
		{"demo --faults drop=2", "use a probability from 0 to 1"},
		{"demo --faults drop=1%", `drop cannot be "1%"`},
		{"demo --faults=", "--faults: it is empty"},
		{"demo --faults seed=1 --nodes 33", "--faults with 33 nodes: every pair needs its own link; use up to 32"},
		{"demo --duration 1", "--duration: use a time from 10ms to 1m, such as 250ms or 2s"},
		{"demo --duration 1h", "--duration: use a time from 10ms to 1m"},
		{"up --netns=", "--netns: it is empty: give a value, or leave it out"},
		{"up --link=", "--link: it is empty: give a value, or leave it out"},
		{"up --topology tours:4", "--topology: there is no file tours:4: did you mean torus:4?"},
		{"up --conns-congestion=", "--conns-congestion: it is empty"},
		{"up --join=", "--join: it is empty"},
		{"demo --runs 0", "--runs: use a number from 1 to 100"},
		{"demo --json=maybe", `--json: "maybe" is neither true nor false`},
		{"demo iperf3 -c 10.2.0.2", `unexpected argument "iperf3": a command to run goes after --`},
		{"demo --", "no command after --: give one, as in exn-tun demo -- ping 10.2.0.2"},
		{"demo --nodes 3 --", "no command after --"},
		{"demo --shell -- true", "--shell and a command exclude each other"},
		{"demo --json -- true", "--json is for the demonstration"},
		{"demo --json --shell", "--json is for the demonstration"},
		{"demo --serve server", "--serve needs something to run beside it"},
		{"demo --serve= -- true", "--serve: it is empty"},
		{"demo --in 2", "--in says where a command runs"},
		{"demo --in 3 -- true", "--in 3: there are 2 nodes; use 1 to 2 or more --nodes"},
		{"demo --in 0 -- true", "--in: use a number from 1 to 254"},
	} {
		t.Run(c.args, func(t *testing.T) {
			status, stdout, stderr := run(t.Context(), strings.Fields(c.args)...)
			if status != cli.ExitUsage || stdout != "" {
				t.Errorf("status %d, %q on standard output; want %d and nothing", status, stdout, cli.ExitUsage)
			}
			oneLineOf(t, stderr, c.want)
			if !strings.HasPrefix(stderr, "exn-tun") || !strings.Contains(stderr, " -h") {
				t.Errorf("%q does not say whose message it is, or where there is help", stderr)
			}
		})
	}
}

func TestCommands(t *testing.T) { clitest.Tree(t, newRoot(), tableWidth) }

// TestNoRuntimeDir: a user without XDG_RUNTIME_DIR is told about --dir.
func TestNoRuntimeDir(t *testing.T) {
	clitest.ShareCoverage(t)
	for _, args := range []string{"up --addr 10.9.0.1/24", "status", "down"} {
		cmd, _, stderr := programCommand(strings.Fields(args)...)
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=")
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		err := cmd.Run()
		if errors.Is(err, fs.ErrPermission) {
			t.Skipf("nobody may not run the test: %v", err)
		}
		if err == nil || !strings.Contains(stderr.String(), "XDG_RUNTIME_DIR is not set: name one with --dir, or run as root") {
			t.Errorf("%s: %v, %q", args, err, stderr)
		}
	}
}

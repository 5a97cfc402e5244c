package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// completions are what a user types before the key TAB, and what is there then. There is a node 7
// of fabric shells, and a namespace shellsns.
var completions = []struct{ typed, want string }{
	{"exn-tun sta", "exn-tun status"},
	{"exn-tun status --fabric she", "exn-tun status --fabric shells"},
	{"exn-tun status --fabric shells --node ", "exn-tun status --fabric shells --node 7"},
	{"exn-tun up --netns shel", "exn-tun up --netns shellsns"},
	{"exn-tun up --topology tor", "exn-tun up --topology torus:"},
	{"exn-tun up --log-level de", "exn-tun up --log-level debug"},
	{"exn-tun up --mode bu", "exn-tun up --mode busy"},
	{"exn-tun route reserve --router minm", "exn-tun route reserve --router minmax"},
	{"exn-tun route reserve --primitive allr", "exn-tun route reserve --primitive allreduce"},
	{"exn-tun set mode=i", "exn-tun set mode=interrupt"},
	{"exn-tun set coalesce-u", "exn-tun set coalesce-usecs="},
	{"exn-tun set link 1-2 d", "exn-tun set link 1-2 down"},
	{"dsbench stream --paths lo,vet", "dsbench stream --paths lo,veth"},
	{"dsbench stream --control vet", "dsbench stream --control veth"},
	{"dsbench stream --cpus dif", "dsbench stream --cpus different"},
	{"dsbench programs --only pgb", "dsbench programs --only pgbench"},
	{"dsbench mpi --mpi mpi", "dsbench mpi --mpi mpich"},
	{"exn-run --fabric she", "exn-run --fabric shells"},
	{"exn-run --log-level de", "exn-run --log-level debug"},
	{"exn-run --completion fi", "exn-run --completion fish"},
}

// Completion in the shells themselves, with the scripts that the commands print.
func TestRootCompletion(t *testing.T) {
	longtest.Skip(t)
	testlab.RequireTUN(t)
	bin, err := testlab.Build("exn-tun", "exn-run", "dsbench")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	commands := []string{"exn-tun", "exn-run", "dsbench"}
	scripts := t.TempDir()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		for _, c := range commands {
			args := []string{filepath.Join(bin, c), "completion", shell}
			if c == "exn-run" {
				args = []string{filepath.Join(bin, c), "--completion", shell}
			}
			name := map[string]string{"bash": c + ".bash", "zsh": "_" + c, "fish": c + ".fish"}[shell]
			if err := os.WriteFile(filepath.Join(scripts, name), []byte(outputOf(t, ".", args...)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const bashCompletion = "/usr/share/bash-completion/bash_completion"
	for name, text := range map[string]string{
		".bashrc": "PS1='ready> '; . " + bashCompletion + "; for f in " + scripts + "/*.bash; do . $f; done\n" +
			"bind 'set enable-bracketed-paste off'\n",
		".zshrc": "PS1='ready> '; fpath=(" + scripts + " $fpath); autoload -Uz compinit; compinit -u -D; bindkey -e; unset zle_bracketed_paste\n",
	} {
		if err := os.WriteFile(filepath.Join(scripts, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	// begin starts a shell in namespaces of its own, in which a node is up.
	begin := func(t *testing.T, argv ...string) *exec.Cmd {
		if _, err := exec.LookPath(argv[0]); err != nil {
			t.Skip(err)
		}
		const ground = `mount -t tmpfs none /run; mkdir /run/netns; : >/run/netns/shellsns; ip link set lo up
exn-tun up --fabric shells --node 7 --addr 10.9.0.7/24 --detach >/run/log 2>&1 || { cat /run/log; exit 1; }
exec "$@"`
		cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"-n", "-m", "-p", "-i", "--fork", "--kill-child", "--mount-proc",
			"bash", "-euc", ground, "ground"}, argv...)...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+scripts, "ZDOTDIR="+scripts, "XDG_CONFIG_HOME="+scripts, "TERM=dumb", "LC_ALL=C.UTF-8")
		return cmd
	}
	t.Run("bash", func(t *testing.T) {
		if _, err := os.Stat(bashCompletion); err != nil {
			t.Skip("the package bash-completion is not installed: ", err)
		}
		typeAll(t, begin(t, "bash", "--noprofile", "--rcfile", filepath.Join(scripts, ".bashrc"), "-i"))
	})
	t.Run("zsh", func(t *testing.T) { typeAll(t, begin(t, "zsh", "-o", "noglobalrcs", "-i")) })
	t.Run("fish", func(t *testing.T) {
		var lines strings.Builder
		for _, c := range commands {
			fmt.Fprintf(&lines, "source %s/%s.fish\n", scripts, c)
		}
		for i, c := range completions {
			fmt.Fprintf(&lines, "complete -C %q | string replace -r '^' '%d '\n", c.typed, i)
		}
		out, err := begin(t, "fish", "-c", lines.String()).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for i, c := range completions {
			var got []string // what it offers for the last word, without what it says about that
			for line := range strings.Lines(string(out)) {
				if of, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && of == fmt.Sprint(i) {
					value, _, _ = strings.Cut(value, "\t")
					got = append(got, c.typed[:strings.LastIndexByte(c.typed, ' ')+1]+value)
				}
			}
			// Where no space is to follow, cobra's script offers a second one that ends with a dot.
			got = slices.DeleteFunc(got, func(s string) bool { return s == c.want+"." })
			if !slices.Equal(got, []string{c.want}) {
				t.Errorf("%q TAB: %q, want %q", c.typed, got, c.want)
			}
		}
	})
}

// typeAll types each line on a terminal with the shell in its foreground, then TAB, and then "echo
// got:" at the line's beginning, so that the shell says what the line is.
func typeAll(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	keys, tty := openTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	defer func() {
		cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	var mu sync.Mutex
	var screen []byte
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			if err != nil {
				return // EIO when the shell is gone
			}
			mu.Lock()
			screen = append(screen, buf[:n]...)
			mu.Unlock()
		}
	}()
	said := regexp.MustCompile(`(?m)^got: (.*?) *\r?$`)
	got := func(n int) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		all := said.FindAllSubmatch(screen, -1)
		if len(all) <= n {
			return "", fmt.Errorf("there is no line %d:\n%s", n, screen)
		}
		return string(all[n][1]), nil
	}
	for i, c := range completions {
		if err := testlab.Await(func() error {
			mu.Lock()
			defer mu.Unlock()
			if n := strings.Count(string(screen), "ready> "); n <= i {
				return fmt.Errorf("there is no prompt %d:\n%s", i, screen)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := keys.WriteString(c.typed + "\t\x01echo got: \r"); err != nil {
			t.Fatal(err)
		}
		var line string
		if err := testlab.Await(func() (err error) { line, err = got(i); return err }); err != nil {
			t.Fatal(err)
		}
		if line != c.want {
			t.Errorf("%q TAB: %q, want %q", c.typed, line, c.want)
		} else {
			t.Logf("%-45s TAB: %s", c.typed, line)
		}
	}
}

// openTerminal returns both ends of a pseudo terminal, 200 columns wide.
func openTerminal(t *testing.T) (keys, tty *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keys.Close() })
	raw, err := keys.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	var ioctlErr error
	if err := raw.Control(func(fd uintptr) {
		if ioctlErr = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); ioctlErr == nil {
			number, ioctlErr = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if ioctlErr == nil {
			ioctlErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 60, Col: 200})
		}
	}); err != nil || ioctlErr != nil {
		t.Fatal(err, ioctlErr)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return keys, tty
}

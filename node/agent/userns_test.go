package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/preload"

	"golang.org/x/sys/unix"
)

// hostUsers is the first user of the host that a container's root is.
const hostUsers = 200_000

// nextEnv is the role of the program that a container's first process becomes.
const nextEnv = "EXNET_AGENT_TEST_NEXT"

// contain is a container's first process: it has the brokers' directory as its runtime would, in
// the way that is said, and becomes the program.
func contain(how string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private: %w", err)
	}
	bind := func(from string, flags uintptr) error {
		if err := unix.Mount(from, client.SystemDir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		if err := unix.Mount("", client.SystemDir, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
			return fmt.Errorf("remount: %w", err)
		}
		return nil
	}
	var err error
	switch how {
	case "read-only":
		err = bind(client.SystemDir, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV)
	case "writable":
		err = bind(client.SystemDir, unix.MS_NOSUID|unix.MS_NODEV)
	}
	if err != nil {
		return err
	}
	args := strings.Split(os.Getenv(nextEnv), "\n")
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, roleEnv+"=") })
	env = append(env, roleEnv+"="+os.Getenv(nextEnv+"_ROLE"))
	if library := os.Getenv(nextEnv + "_PRELOAD"); library != "" {
		env = append(env, "LD_PRELOAD="+library)
	}
	return fmt.Errorf("exec %q: %w", args, unix.Exec(args[0], args, env))
}

// contained has a program run in a user namespace of its own, which does not know the host's root.
func contained(l *lab, as language, cmd *exec.Cmd, how string) {
	l.t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	share := func(path string) string { // with users who may not read a folder above it
		b, err := os.ReadFile(path)
		if err != nil {
			l.t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Base(path))
		if err := errors.Join(os.WriteFile(to, b, 0o755), os.Chmod(to, 0o755)); err != nil { // whatever the umask is
			l.t.Fatal(err)
		}
		return to
	}
	args := append([]string{"/proc/self/exe"}, cmd.Args[1:]...)
	if as == inC {
		library, err := preload.Build(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		args = append([]string{cmd.Path, share("testdata/chat.py")}, cmd.Args[2:]...)
		cmd.Env = append(cmd.Env, nextEnv+"_PRELOAD="+share(library))
	}
	var env []string
	for _, v := range cmd.Env {
		if role, ok := strings.CutPrefix(v, roleEnv+"="); ok {
			v = nextEnv + "_ROLE=" + role
		}
		if !strings.HasPrefix(v, "LD_PRELOAD=") {
			env = append(env, v)
		}
	}
	cmd.Path, cmd.Args = "/proc/self/exe", []string{"contained"}
	cmd.Env = append(env, roleEnv+"=contain "+how, nextEnv+"="+strings.Join(args, "\n"))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		Credential:  &syscall.Credential{},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: hostUsers, Size: 65536}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: hostUsers, Size: 65536}},
	}
}

// Programs of containers that have user namespaces of their own are direct if the brokers'
// directory is a read-only mount, and stay on TCP if somebody in the container may have written it.
func TestRootUserNamespace(t *testing.T) {
	for _, tt := range []struct {
		how    string
		direct bool
	}{{"read-only", true}, {"writable", false}, {"none", false}} {
		for _, in := range languages[:2] {
			t.Run(fmt.Sprint(tt.how, ", ", in.client), func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				l.how = tt.how
				l.chat(l.b, in.server, "server", "172.30.0.3", 8080)
				c := l.chat(l.a, in.client, "client", "172.30.0.3", 8080)
				if tt.direct {
					l.becomesDirect(l.a, c)
					return
				}
				if got := c.do("open"); got != "ok" {
					t.Fatal(got)
				}
				for range 10 {
					if got := c.do("ask 100 60"); got != "ok" {
						t.Fatal(got)
					}
				}
				if all := l.connections(l.a); len(all) > 0 {
					t.Errorf("the broker has the client: %+v", all)
				}
			})
		}
	}
}

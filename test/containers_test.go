package e2e

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/testlab"
)

var containers = flag.Bool("containers", false, "redis and nginx in containers of podman, attached by exn-cni, and with devices of exn-tun cdi; wants podman with its CNI backend and netavark, crun, runc, redis, nginx, curl, tcpdump and musl-gcc; TestRootDocker wants docker.io")

// Programs in containers of podman reach each other over exn0, and with EXNET=1 or the annotation
// by direct sockets, as docs/containers.md says. When the containers go, nothing is left.
func TestRootContainers(t *testing.T) {
	if !*containers {
		t.Skip("it wants podman: run it with -containers")
	}
	testlab.RequireTUN(t)
	for _, program := range []string{"podman", "crun", "redis-server", "nginx", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
	bin, err := testlab.Build("exn-tun", "exn-cni")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	outputOf(t, ".", "go", "build", "-o", bin, "-modfile", "../tools/go.mod", "github.com/containernetworking/plugins/plugins/ipam/host-local")
	scripts, err := filepath.Abs("testdata/containers")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	outputOf(t, ".", filepath.Join(scripts, "rootfs.sh"), root)
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	out, err := runBlock(ctx, filepath.Dir(scripts), bin, filepath.Join(scripts, "podman.sh")+" "+bin+" "+root)
	if err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("podman.sh: %v\n%s", err, out)
	}
}

// Programs in containers of podman on a bridge go direct by the devices of exn-tun cdi, with glibc
// and with musl, as docs/any-network.md says, and are so again after another agent has begun.
func TestRootContainerDevices(t *testing.T) {
	if !*containers {
		t.Skip("it wants podman: run it with -containers")
	}
	for _, program := range []string{"podman", "runc", "redis-server", "nginx", "curl", "jq", "musl-gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
	bin, err := testlab.Build("exn-tun")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	scripts, err := filepath.Abs("testdata/containers")
	if err != nil {
		t.Fatal(err)
	}
	outputOf(t, ".", filepath.Join(scripts, "libraries.sh"), bin)
	root, musl := filepath.Join(t.TempDir(), "root"), filepath.Join(t.TempDir(), "musl")
	outputOf(t, ".", filepath.Join(scripts, "rootfs.sh"), root)
	outputOf(t, ".", filepath.Join(scripts, "muslfs.sh"), musl)
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	out, err := runBlock(ctx, filepath.Dir(scripts), bin, filepath.Join(scripts, "cdi.sh")+" "+bin+" "+root+" "+musl)
	if err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("cdi.sh: %v\n%s", err, out)
	}
}

// Programs in containers of Docker on its bridges go direct by variables and mounts, as
// docs/any-network.md says.
func TestRootDocker(t *testing.T) {
	if !*containers {
		t.Skip("it wants Docker: run it with -containers")
	}
	for _, program := range []string{"dockerd", "/usr/bin/docker", "runc", "iptables", "redis-server", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
	bin, err := testlab.Build("exn-tun")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	scripts, err := filepath.Abs("testdata/containers")
	if err != nil {
		t.Fatal(err)
	}
	outputOf(t, ".", filepath.Join(scripts, "libraries.sh"), bin)
	root := filepath.Join(t.TempDir(), "root")
	outputOf(t, ".", filepath.Join(scripts, "rootfs.sh"), root)
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	out, err := runBlock(ctx, filepath.Dir(scripts), bin, filepath.Join(scripts, "docker.sh")+" "+bin+" "+root)
	if err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("docker.sh: %v\n%s", err, out)
	}
}

// With packaging/exnet.service and its few rights, systemctl start exnet serves programs of any
// user in any network namespace.
func TestRootUnit(t *testing.T) {
	if !*containers {
		t.Skip("it starts systemd: run it with -containers")
	}
	for _, program := range []string{"/lib/systemd/systemd", "redis-server", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
	bin, err := testlab.Build("exn-tun")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(bin)
	outputOf(t, ".", "testdata/containers/libraries.sh", bin)
	ctx, cancel := context.WithTimeout(t.Context(), hangTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "testdata/containers/systemd.sh", bin).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("systemd.sh: %v\n%s", err, out)
	}
}

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

var (
	debian  = flag.String("debian", "", "`DIR` a root file system of Debian 13, which debian.sh makes there if it is not there yet: containers of its Docker, by a CDI device; minutes, and half a gigabyte")
	kubelet = flag.String("kubelet", "", "`FILE` a kubelet, linked statically: with -debian, its pods on Debian's containerd")
	crio    = flag.String("crio", "", "`FILE` CRI-O, for Debian 13, with its program pinns beside it: with -debian and -kubelet, pods on it, too")
)

// ofDebian are the packages of -debian.
var ofDebian = []string{
	"buildah", "conmon", "conntrack", "containerd", "containernetworking-plugins", "docker-cli", "docker.io", "etcd-server", "iproute2", "ipset", "iptables",
	"jq", "libsqlite3-0", "netavark", "nftables", "openssl", "procps", "runc", "skopeo",
}

// needContainers skips the test without -containers, or without one of the programs that it runs.
func needContainers(t *testing.T, engine string, programs ...string) {
	t.Helper()
	if !*containers {
		t.Skipf("it wants %s: run it with -containers", engine)
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
}

// containerScripts is the folder of what the tests of containers run.
func containerScripts(t *testing.T) string {
	t.Helper()
	scripts, err := filepath.Abs("testdata/containers")
	if err != nil {
		t.Fatal(err)
	}
	return scripts
}

// buildFor builds commands into a folder that goes with the test.
func buildFor(t *testing.T, commands ...string) (bin string) {
	t.Helper()
	bin, err := testlab.Build(commands...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	return bin
}

// inContainers runs a script with the commands in bin and the root file systems that other scripts
// make.
func inContainers(t *testing.T, bin, script string, systems ...string) {
	t.Helper()
	runInContainers(t, bin, append([]string{filepath.Join(containerScripts(t), script), bin}, rootSystems(t, systems...)...))
}

// rootSystems makes root file systems for containers by scripts, in folders that go with the test.
func rootSystems(t *testing.T, by ...string) (roots []string) {
	t.Helper()
	for _, system := range by {
		root := filepath.Join(t.TempDir(), "root")
		outputOf(t, ".", filepath.Join(containerScripts(t), system), root)
		roots = append(roots, root)
	}
	return roots
}

// runInContainers runs a script's line, which has to end with "ok".
func runInContainers(t *testing.T, bin string, line []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangTime)
	defer cancel()
	out, err := runBlock(ctx, filepath.Dir(containerScripts(t)), bin, strings.Join(line, " "))
	if err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("%s: %v\n%s", line, err, out)
		return
	}
	t.Logf("%s", out)
}

// inDebian runs a script's line with the root file system of -debian.
func inDebian(t *testing.T, bin string, line ...string) {
	t.Helper()
	root, err := filepath.Abs(*debian)
	if err != nil {
		t.Fatal(err)
	}
	scripts := containerScripts(t)
	if _, err := os.Stat(root); err != nil {
		outputOf(t, ".", append([]string{filepath.Join(scripts, "debian.sh"), root, "trixie"}, ofDebian...)...)
	}
	line[0] = filepath.Join(scripts, line[0])
	runInContainers(t, bin, append([]string{filepath.Join(scripts, "within.sh"), root}, line...))
}

// Programs in containers of podman reach each other over exn0, and with EXNET=1 or the annotation
// by direct sockets, as docs/containers.md says. When the containers go, nothing is left.
func TestRootContainers(t *testing.T) {
	needContainers(t, "podman", "podman", "crun", "redis-server", "nginx", "curl", "jq")
	testlab.RequireTUN(t)
	bin := buildFor(t, "exn-tun", "exn-cni")
	outputOf(t, ".", "go", "build", "-o", bin, "-modfile", "../tools/go.mod", "github.com/containernetworking/plugins/plugins/ipam/host-local")
	inContainers(t, bin, "podman.sh", "rootfs.sh")
}

// Programs in containers of podman on a bridge go direct by the devices of exn-tun cdi, with glibc
// and with musl, as docs/any-network.md says, and are so again after another agent has begun.
func TestRootContainerDevices(t *testing.T) {
	needContainers(t, "podman", "podman", "runc", "redis-server", "nginx", "curl", "jq", "musl-gcc")
	bin := buildFor(t, "exn-tun")
	outputOf(t, ".", filepath.Join(containerScripts(t), "libraries.sh"), bin)
	inContainers(t, bin, "cdi.sh", "rootfs.sh", "muslfs.sh")
}

// Programs in containers of Docker on its bridges go direct by variables and mounts, as
// docs/any-network.md says.
func TestRootDocker(t *testing.T) {
	needContainers(t, "Docker", "dockerd", "/usr/bin/docker", "runc", "iptables", "redis-server", "jq")
	bin := buildFor(t, "exn-tun")
	outputOf(t, ".", filepath.Join(containerScripts(t), "libraries.sh"), bin)
	inContainers(t, bin, "docker.sh", "rootfs.sh")
}

// Docker has CDI from version 25: containers go direct by the device of exn-tun cdi.
func TestRootDockerDevices(t *testing.T) {
	if *debian == "" {
		t.Skip("it wants Debian 13's Docker: run it with -debian DIR")
	}
	bin := buildFor(t, "exn-tun")
	outputOf(t, ".", filepath.Join(containerScripts(t), "libraries.sh"), bin)
	inDebian(t, bin, "docker.sh", bin, rootSystems(t, "rootfs.sh")[0], "cdi")
}

// Static pods of a kubelet that ask by a limit go direct, with containerd as their runtime, and
// with CRI-O: by the mounts of the device plugin, and by CDI.
func TestRootKubelet(t *testing.T) {
	if *debian == "" || *kubelet == "" {
		t.Skip("it wants Debian 13's containerd and a kubelet: run it with -debian DIR -kubelet FILE")
	}
	bin := buildFor(t, "exn-tun")
	outputOf(t, ".", filepath.Join(containerScripts(t), "libraries.sh"), bin)
	outputOf(t, ".", "cp", *kubelet, filepath.Join(bin, "kubelet"))
	root := rootSystems(t, "rootfs.sh")[0]
	t.Run("containerd", func(t *testing.T) { inDebian(t, bin, "kubelet.sh", bin, root, filepath.Join(bin, "kubelet")) })
	t.Run("CRI-O", func(t *testing.T) {
		if *crio == "" {
			t.Skip("it wants CRI-O, too: -crio FILE")
		}
		outputOf(t, ".", "cp", *crio, filepath.Join(bin, "crio"))
		outputOf(t, ".", "cp", filepath.Join(filepath.Dir(*crio), "pinns"), bin)
		inDebian(t, bin, "kubelet.sh", bin, root, filepath.Join(bin, "kubelet"), filepath.Join(bin, "crio"))
	})
}

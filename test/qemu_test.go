package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
)

var (
	qemu      = flag.Bool("qemu", false, "a virtual machine behind a bridged exn0 reaches another node; downloads a kernel package by apt-get unless -qemu.kernel names one")
	qemuPkg   = flag.String("qemu.kernel", "", "`FILE` .deb of Debian's linux-image-*-cloud-amd64")
	qemuAccel = flag.String("qemu.accel", "tcg", "`NAME` how qemu runs it: tcg, or kvm where that works")
)

// The guest's modules, in the order in which they are loaded.
var guestModules = []string{
	"net/core/failover", "drivers/net/net_failover", "drivers/virtio/virtio_ring", "drivers/virtio/virtio",
	"drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci",
	"drivers/net/virtio_net",
}

// guestInit is what the guest does: it brings up its card, pings node 1, reads what that
// sends, says how it went, and is off.
const guestInit = `#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for m in %s; do $b insmod /lib/$m.ko; done
$b ip link set eth0 up
$b ip addr add 10.2.0.30/24 dev eth0
$b ping -c 3 -w 60 10.2.0.1 && echo guest: ping answered
echo guest: sum $($b nc 10.2.0.1 8000 | $b sha256sum)
$b poweroff -f
`

// kernelPackage unpacks a kernel package, and returns where it is.
func kernelPackage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run := func(argv ...string) string {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("no kernel for the guest: %v: %v", argv, err)
		}
		return string(out)
	}
	deb := *qemuPkg
	if deb == "" {
		for line := range strings.Lines(run("apt-cache", "depends", "linux-image-cloud-amd64")) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
				run("apt-get", "download", name)
			}
		}
		found, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
		if len(found) != 1 {
			t.Skipf("no kernel for the guest: apt-get download brought %q", found)
		}
		deb = found[0]
	}
	run("dpkg-deb", "-x", deb, "kernel")
	return filepath.Join(dir, "kernel")
}

// one returns the only file that a pattern matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s matches %q, %v", pattern, found, err)
	}
	return found[0]
}

// initramfs makes the guest's file system, and returns the file that it is in.
func initramfs(t *testing.T, kernel string) string {
	t.Helper()
	root := t.TempDir()
	put := func(name string, data []byte) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	put("bin/busybox", read("/bin/busybox"))
	var names []string
	for _, m := range guestModules {
		put("lib/"+filepath.Base(m)+".ko", read(one(t, filepath.Join(kernel, "lib/modules/*/kernel", m+".ko"))))
		names = append(names, filepath.Base(m))
	}
	put("init", fmt.Appendf(nil, guestInit, strings.Join(names, " ")))
	for _, dir := range []string{"proc", "sys", "dev"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return pack(t, root)
}

// pack writes a directory as a compressed cpio archive.
func pack(t *testing.T, root string) string {
	t.Helper()
	var files strings.Builder
	if err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, path)
		fmt.Fprintln(&files, name)
		if err == nil {
			err = relErr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("busybox", "cpio", "-o", "-H", "newc")
	cmd.Dir, cmd.Stdin = root, strings.NewReader(files.String())
	archive, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(path, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A virtual machine on a bridged exn0 reaches another node, and reads megabytes from it, with
// segmentation and checksums left undone all the way.
func TestRootEthernetQEMU(t *testing.T) {
	longtest.Skip(t)
	if !*qemu {
		t.Skip("it boots a virtual machine, which takes 10 s or more: run it with -qemu")
	}
	need(t, "ip", "ping")
	for _, program := range []string{"qemu-system-x86_64", "busybox", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s (qemu-system-x86, busybox-static, dpkg)", program)
		}
	}
	kernel := kernelPackage(t)
	l := newEthernet(t, 2)
	a, b := l.hosts[0], l.hosts[1]

	data := make([]byte, 8<<20)
	rand.New(rand.NewSource(1)).Read(data)
	server := a.startPiped(t, bytes.NewReader(data), "busybox", "nc", "-l", "-p", "8000")
	eventually(t, func() error {
		if out, err := a.try(t, "ss", "-ltn"); err != nil || !strings.Contains(out, ":8000") {
			return fmt.Errorf("nobody listens: %v, %s", err, out)
		}
		return nil
	})
	b.ips(t, `link add br0 address `+b.mac()+` type bridge
		link set exn0 master br0
		addr flush dev exn0
		link set br0 up
		tuntap add tap0 mode tap vnet_hdr
		link set tap0 master br0 up`)
	guest := b.start(t, "qemu-system-x86_64", "-accel", *qemuAccel, "-m", "128", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", one(t, filepath.Join(kernel, "boot/vmlinuz-*")), "-initrd", initramfs(t, kernel), "-append", "console=ttyS0 quiet panic=-1",
		"-netdev", "tap,id=n,ifname=tap0,script=no,downscript=no", "-device", "virtio-net-pci,netdev=n,mac=52:54:00:00:00:03")
	begun := time.Now()
	out := guest.wait(t)
	t.Logf("the guest ran for %v", time.Since(begun).Round(time.Second))
	for _, want := range []string{"guest: ping answered", fmt.Sprintf("guest: sum %x", sha256.Sum256(data))} {
		if !strings.Contains(out, want) {
			t.Errorf("the guest did not say %q:\n%s", want, out)
		}
	}
	a.behind(t, "52:54:00:00:00:03", b)
	server.stop()
}

package memory_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

var guest = flag.String("guest", "", "`DIR` a kernel of Debian's, unpacked by dpkg-deb -x (linux-image-*-cloud-amd64): QEMU boots it with a disk in another node's memory; wants qemu-system-x86, qemu-utils and busybox-static")

// guestModules are what the guest's kernel needs for a disk by virtio.
var guestModules = []string{"virtio/virtio_ring.ko", "virtio/virtio.ko", "virtio/virtio_pci_legacy_dev.ko",
	"virtio/virtio_pci_modern_dev.ko", "virtio/virtio_pci.ko", "block/virtio_blk.ko"}

// guestInit says what the disk has, copies its first half to its second, and says what it has then.
// A message of the kernel may come within a line, so each is there twice.
const guestInit = `#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for m in /modules/*; do /bin/busybox insmod $m; done
said() { for i in 1 2; do echo "$1 $(/bin/busybox sha256sum < /dev/vda) END"; done; }
said BEFORE
/bin/busybox dd if=/dev/vda of=/tmp/half bs=1M count=8
/bin/busybox dd if=/tmp/half of=/dev/vda bs=1M seek=8 conv=fsync
echo 3 > /proc/sys/vm/drop_caches
said AFTER
/bin/busybox poweroff -f
`

// guestFiles makes the guest's kernel and its first file system of what is in -guest.
func guestFiles(t *testing.T) (kernel, initrd string) {
	t.Helper()
	one := func(pattern string) string {
		all, _ := filepath.Glob(filepath.Join(*guest, pattern)) // the pattern is right
		if len(all) != 1 {
			t.Fatalf("-guest %s: %d files are %s, want one: unpack one linux-image-*-cloud-amd64 there", *guest, len(all), pattern)
		}
		return all[0]
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", "dev", "proc", "tmp", "modules"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(from, to string) {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, to), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip(err)
	}
	put(busybox, "bin/busybox")
	for i, m := range guestModules {
		put(one("lib/modules/*/kernel/drivers/"+m), fmt.Sprintf("modules/%d", i))
	}
	if err := os.WriteFile(filepath.Join(root, "init"), []byte(guestInit), 0o755); err != nil {
		t.Fatal(err)
	}
	initrd = filepath.Join(t.TempDir(), "initrd")
	pack := exec.CommandContext(t.Context(), "sh", "-c", `find . | busybox cpio -o -H newc >"$1"`, "sh", initrd)
	pack.Dir = root
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	return one("boot/vmlinuz-*"), initrd
}

// A virtual machine has a PCI disk whose content is in another node's memory: what its kernel reads
// is what was written there, and what it writes is there for others.
func TestGuest(t *testing.T) {
	if *guest == "" {
		t.Skip("run it with -guest DIR")
	}
	for _, name := range []string{"qemu-system-x86_64", "qemu-storage-daemon", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	so := plugin(t)
	each(t, func(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
		const size = 16 << 20
		kernel, initrd := guestFiles(t)
		f := start(t, pool.Config{}, lending(64<<20), lending(64<<20))
		uri, _ := serveDevice(t, f, so, "size=16M", "mirror=1,2")
		path, text := image(t, size)
		tool(t, true, "nbdcopy", path, uri)

		disk := filepath.Join(t.TempDir(), "disk")
		daemon := exec.CommandContext(t.Context(), "qemu-storage-daemon",
			"--blockdev", "driver=nbd,node-name=disk,server.type=unix,server.path="+strings.TrimPrefix(uri, "nbd+unix:///?socket="),
			"--export", "type=vhost-user-blk,id=disk,node-name=disk,writable=on,addr.type=unix,addr.path="+disk)
		var said bytes.Buffer
		daemon.Stdout, daemon.Stderr = &said, &said
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = daemon.Process.Kill() // or it has ended
			_ = daemon.Wait()
		}()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(disk); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("qemu-storage-daemon makes no socket: %s", &said)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of a hang: QEMU may emulate the processor
		defer cancel()
		out, err := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "q35,memory-backend=memory", "-accel", "kvm", "-accel", "tcg",
			"-m", "256M", "-object", "memory-backend-memfd,id=memory,size=256M,share=on",
			"-chardev", "socket,id=disk,path="+disk, "-device", "vhost-user-blk-pci,chardev=disk",
			"-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1",
			"-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot").CombinedOutput()
		if err != nil {
			t.Fatalf("qemu: %v\n%s", err, out)
		}
		check := func(when string) {
			if want := fmt.Sprintf("%s %x  - END", when, sha256.Sum256(text)); !bytes.Contains(out, []byte(want)) {
				t.Errorf("the guest does not say %q\n%s", want, out)
			}
		}
		check("BEFORE")
		copy(text[size/2:], text[:size/2])
		check("AFTER")
		sameDevice(t, uri, text)
	})
}

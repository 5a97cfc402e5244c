package memory_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// plugin builds the plugin of nbdkit, with more flags of the compiler.
func plugin(t *testing.T, flags ...string) string {
	t.Helper()
	for _, name := range []string{"nbdkit", "nbdcopy", "nbdinfo", "make", "cc"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	if _, err := os.Stat("/usr/include/nbdkit-plugin.h"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	args := []string{"-s", "-C", "c", "BUILD=" + dir}
	if len(flags) > 0 {
		args = append(args, "CFLAGS="+strings.Join(flags, " "))
	}
	if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "nbdkit-exnet-plugin.so")
}

// sanitizer is what nbdkit has in its environment while its plugin is built with a sanitizer, whose
// library it has to have.
var sanitizer []string

// serveDevice runs nbdkit, and returns the device's URI and what nbdkit says at its end.
func serveDevice(t *testing.T, f *pooltest.Fabric, plugin string, args ...string) (uri string, end func() string) {
	t.Helper()
	return serveSocket(t, f.Socket(0), plugin, args...)
}

// serveSocket is serveDevice with the node whose socket is named.
func serveSocket(t *testing.T, node, plugin string, args ...string) (uri string, end func() string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "nbd")
	cmd := exec.Command("nbdkit", append([]string{"-f", "-U", socket, plugin, "socket=" + node}, args...)...)
	cmd.Env = append(os.Environ(), sanitizer...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	end = func() string {
		_ = cmd.Process.Signal(os.Interrupt)
		if len(sanitizer) > 0 { // its exit may wait for ever for a lock of the C library's locales
			defer time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
		}
		<-ended
		return out.String()
	}
	t.Cleanup(func() { end() })
	for {
		if _, err := os.Stat(socket); err == nil {
			return "nbd+unix:///?socket=" + socket, end
		}
		select {
		case <-ended:
			t.Fatalf("nbdkit: %s", out.String())
		case <-time.After(time.Millisecond):
		}
	}
}

// tool runs a program, and returns whether it has succeeded.
func tool(t *testing.T, want bool, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if (err == nil) != want {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// image is a file of random bytes with holes.
func image(t *testing.T, size int) (path string, text []byte) {
	t.Helper()
	text = make([]byte, size)
	for at := 0; at < size; at += 300_000 { // three in ten bytes
		for i := at; i < min(at+90_000, size); i++ {
			text[i] = byte(rand.Int())
		}
	}
	path = filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, text
}

// sameDevice checks what is on a device, read by nbdcopy.
func sameDevice(t *testing.T, uri string, want []byte) {
	t.Helper()
	back := filepath.Join(t.TempDir(), "back")
	tool(t, true, "nbdcopy", uri, back)
	got, err := os.ReadFile(back)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the device has %d other bytes, %v", len(got), err)
	}
}

// Unmodified programs use a block device in another node's memory.
func TestDevice(t *testing.T) {
	so := plugin(t)
	each(t, func(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
		useDevice(t, so, start(t, pool.Config{}, lending(64<<20)))
	})
}

// useDevice has programs use a device in the memory of node 1.
func useDevice(t *testing.T, so string, f *pooltest.Fabric) {
	t.Helper()
	const size = 16 << 20
	uri, end := serveDevice(t, f, so, "size=16M")
	lent(t, f.Nodes[1], size)
	info := tool(t, true, "nbdinfo", uri)
	for _, want := range []string{"export-size: 16777216", "can_flush: true", "can_multi_conn: true", "can_trim: true", "can_zero: true", "can_fua: true", "block_size_preferred: 4096", "is_rotational: false"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in %s", want, info)
		}
	}
	path, text := image(t, size)
	tool(t, true, "nbdcopy", path, uri)
	sameDevice(t, uri, text)
	m := tool(t, true, "nbdinfo", "--map", "--totals", uri)
	if near := strings.HasSuffix(t.Name(), "near"); strings.Contains(m, "hole") != near || !strings.Contains(m, "data") {
		t.Errorf("holes: %s", m)
	}
	if _, err := exec.LookPath("qemu-img"); err == nil {
		back := filepath.Join(t.TempDir(), "back.raw")
		tool(t, true, "qemu-img", "convert", "-f", "raw", "-O", "raw", uri, back)
		if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, text) {
			t.Errorf("qemu-img read something else: %v", err)
		}
		tool(t, true, "qemu-img", "compare", "-f", "raw", "-F", "raw", uri, path)
	}
	if _, err := exec.LookPath("fio"); err == nil {
		tool(t, true, "fio", "--name=verify", "--ioengine=nbd", "--uri="+uri, "--rw=randwrite", "--bs=4k", "--size=8M", "--iodepth=16",
			"--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--output=/dev/null")
	}
	checkFilesystem(t, uri)
	end()
	lent(t, f.Nodes[1], 0)
}

// Without its lender a device is an I/O error; with a mirror nothing is lost until the last one.
func TestDeviceLosesLenders(t *testing.T) {
	so := plugin(t)
	each(t, func(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
		loseLenders(t, so, start(t, pool.Config{}, lending(64<<20), lending(64<<20)))
	})
}

// From when a lender has cut its memory until it has said so, reads fail: it is no hole, which
// programs take for zeros.
func TestDeviceCut(t *testing.T) {
	const size = 4 << 20
	so := plugin(t)
	f := pooltest.New(t, pool.Config{}, lending(64<<20))
	path, _ := image(t, size)
	uri, _ := serveDevice(t, f, so, "size=4M")
	tool(t, true, "nbdcopy", path, uri)
	cut := 0
	for fd := range 1024 { // the lender is in this process
		name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		var st unix.Stat_t
		if strings.HasPrefix(name, "/memfd:") && unix.Fstat(fd, &st) == nil && st.Size == size {
			if err := unix.Ftruncate(fd, 0); err != nil {
				t.Fatal(err)
			}
			cut++
		}
	}
	if cut != 1 {
		t.Fatalf("%d files of %d bytes", cut, size)
	}
	if m := tool(t, true, "nbdinfo", "--map", "--totals", uri); strings.Contains(m, "hole") {
		t.Errorf("memory that was taken back is a hole: %s", m)
	}
	if out := tool(t, false, "nbdcopy", uri, filepath.Join(t.TempDir(), "back")); !strings.Contains(out, "Input/output error") {
		t.Errorf("%s", out)
	}
}

// loseLenders has nodes 1 and 2 go, one after the other.
func loseLenders(t *testing.T, so string, f *pooltest.Fabric) {
	t.Helper()
	path, text := image(t, 4<<20)
	uri, end := serveDevice(t, f, so, "size=4M", "mirror=1,2")
	tool(t, true, "nbdcopy", path, uri)
	f.Stop(1)
	sameDevice(t, uri, text)
	tool(t, true, "nbdcopy", path, uri)
	sameDevice(t, uri, text)
	if n := f.Nodes[2].Revoke(func(pool.Lease) bool { return true }, time.Hour); n != 1 {
		t.Errorf("%d leases", n)
	}
	lent(t, f.Nodes[2], 0)
	if out := tool(t, false, "nbdcopy", uri, filepath.Join(t.TempDir(), "back")); !strings.Contains(out, "Input/output error") {
		t.Errorf("%s", out)
	}
	said := end()
	// Who reads before it hears that node 1 ends finds that the memory is cut.
	for _, want := range []string{"the copy on node 1 is lost: its lender ", "the copy on node 2 is lost: its lender has taken the memory back"} {
		if strings.Count(said, want) != 1 {
			t.Errorf("%q is not once in %s", want, said)
		}
	}
}

// The plugin under the sanitizers of addresses and of undefined behaviour, whatever is done with
// the device, and when its lenders go.
func TestDeviceSanitized(t *testing.T) {
	longtest.Nightly(t)
	so := plugin(t, "-O1", "-g", "-ftrivial-auto-var-init=pattern", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
	library, err := exec.Command("cc", "-print-file-name=libasan.so").Output()
	if err != nil || !filepath.IsAbs(strings.TrimSpace(string(library))) {
		t.Skipf("no library of the sanitizer: %v", err)
	}
	report := filepath.Join(t.TempDir(), "report")
	sanitizer = []string{
		"LD_PRELOAD=" + strings.TrimSpace(string(library)),
		"ASAN_OPTIONS=detect_leaks=0:log_path=" + report, "UBSAN_OPTIONS=log_path=" + report,
	}
	defer func() { sanitizer = nil }()
	each(t, func(t *testing.T, start func(testing.TB, ...pool.Config) *pooltest.Fabric) {
		useDevice(t, so, start(t, pool.Config{}, lending(64<<20)))
		loseLenders(t, so, start(t, pool.Config{}, lending(64<<20), lending(64<<20)))
	})
	reports, _ := filepath.Glob(report + "*")
	for _, path := range reports {
		text, _ := os.ReadFile(path)
		t.Errorf("%.4000s", text)
	}
}

func TestDeviceRefuses(t *testing.T) {
	so := plugin(t)
	f := pooltest.New(t, pool.Config{}, lending(1<<20))
	for args, want := range map[string]string{
		"":                    "say how large the device is, as in size=2G",
		"size=4097":           "a size of 4097 bytes: use a multiple of 4096",
		"size=2M":             "2097152 bytes are more than there is: node 1 has 1048576 left",
		"size=1M node=5":      "node 5 is not there",
		"size=1M node=0":      "node 0 lends no memory: start it with --lend SIZE",
		"size=1M mirror=1":    "name two nodes or more",
		"size=1M mirror=1,1":  "node 1 appears twice",
		"size=1M node=x":      "x",
		"size=1M colour=blue": "unknown parameter colour",
	} {
		out := tool(t, false, append([]string{"nbdkit", "-f", "-U", "-", so, "socket=" + f.Socket(0)}, strings.Fields(args)...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%s: %s", args, out)
		}
	}
	lent(t, f.Nodes[1], 0)
}

// checkFilesystem makes an ext4 file system with files on a device, and has e2fsck look at it.
func checkFilesystem(t *testing.T, uri string) {
	t.Helper()
	unmount := []string{"fusermount3", "-u"}
	if os.Geteuid() == 0 {
		unmount = []string{"umount"}
	}
	for _, name := range []string{"nbdfuse", "mke2fs", "e2fsck", "debugfs", unmount[0]} {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("no file system: %v", err)
			return
		}
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Logf("no file system: %v", err)
		return
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), t.TempDir()
	mount := exec.Command("nbdfuse", dir, uri)
	if err := mount.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = exec.Command(unmount[0], append(unmount[1:], dir)...).Run()
		_ = mount.Wait()
	}()
	disk := filepath.Join(dir, "nbd")
	for {
		if _, err := os.Stat(disk); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	path, text := image(t, 3<<20)
	if err := os.Rename(path, filepath.Join(files, "file")); err != nil {
		t.Fatal(err)
	}
	tool(t, true, "mke2fs", "-q", "-F", "-t", "ext4", "-d", files, disk)
	tool(t, true, "e2fsck", "-f", "-n", disk)
	back := filepath.Join(t.TempDir(), "back")
	tool(t, true, "debugfs", "-R", "dump /file "+back, disk)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the file has other bytes: %v", err)
	}
}

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

// Operations of FUSE (linux/fuse.h).
const (
	fuseLookup, fuseForget, fuseGetattr, fuseOpen, fuseRead        = 1, 2, 3, 14, 15
	fuseInit, fuseInterrupt, fuseBatchForget                       = 26, 36, 42
	fuseInHeader, fuseInitOut, fuseEntryOut, fuseAttrOut, fuseSize = 40, 64, 128, 104, 1 << 20
	fuseRoot, fuseFile                                             = 1, 2
)

// silentFile is a file system of FUSE with one file, whose content is asked for and never comes.
type silentFile struct {
	dir   string
	dev   *os.File
	reads atomic.Int64 // that wait
	gone  func()       // ends it
}

func newSilentFile(t *testing.T) *silentFile {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no FUSE: ", err)
	}
	s := &silentFile{dir: t.TempDir()}
	if err := unix.Mount("silent", s.dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fd)); err != nil {
		unix.Close(fd)
		t.Skip("no FUSE: ", err)
	}
	// Not before: what is polled of a device that is not mounted is never woken.
	s.dev = os.NewFile(uintptr(fd), "/dev/fuse")
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve(t)
	}()
	s.gone = sync.OnceFunc(func() {
		_ = unix.Unmount(s.dir, unix.MNT_FORCE) // ends all reads, and fails while there were some
		s.dev.Close()
		<-done
		if err := unix.Unmount(s.dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	})
	t.Cleanup(s.gone)
	return s
}

func (s *silentFile) path() string { return filepath.Join(s.dir, "file") }

// serve answers everything but what reads the file, until the device is closed.
func (s *silentFile) serve(t *testing.T) {
	b := make([]byte, 64<<10)
	attr := func(b []byte, node uint64) []byte { // of 88 bytes
		mode := uint32(unix.S_IFREG | 0o666)
		if node == fuseRoot {
			mode = unix.S_IFDIR | 0o755
		}
		b = binary.NativeEndian.AppendUint64(b, node)
		b = binary.NativeEndian.AppendUint64(b, fuseSize)
		b = append(b, make([]byte, 44)...)
		b = binary.NativeEndian.AppendUint32(b, mode)
		return binary.NativeEndian.AppendUint32(b, 1) // links
	}
	for {
		n, err := s.dev.Read(b)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n < fuseInHeader {
			return
		}
		node := binary.NativeEndian.Uint64(b[16:])
		out, size, bad := []byte(nil), 0, int32(0)
		switch binary.NativeEndian.Uint32(b[4:]) {
		case fuseInit:
			out = binary.NativeEndian.AppendUint32(out, 7)
			out = binary.NativeEndian.AppendUint32(out, min(31, binary.NativeEndian.Uint32(b[fuseInHeader+4:])))
			out = append(out, make([]byte, 12)...)
			out = binary.NativeEndian.AppendUint32(out, 4096) // max_write
			size = fuseInitOut
		case fuseLookup:
			out = binary.NativeEndian.AppendUint64(out, fuseFile)
			out = attr(append(out, make([]byte, 32)...), fuseFile)
			size = fuseEntryOut
		case fuseGetattr:
			out = attr(make([]byte, 16), node)
			size = fuseAttrOut
		case fuseOpen:
			size = 16
		case fuseRead:
			s.reads.Add(1)
			continue
		case fuseForget, fuseBatchForget, fuseInterrupt:
			continue
		default:
			bad = -int32(unix.ENOSYS)
		}
		out = append(out, make([]byte, size-len(out))...)
		answer := binary.NativeEndian.AppendUint32(nil, uint32(16+len(out)))
		answer = binary.NativeEndian.AppendUint32(answer, uint32(bad))
		answer = append(answer, b[8:16]...)
		if _, err := s.dev.Write(append(answer, out...)); err != nil && !errors.Is(err, unix.ENOENT) {
			t.Errorf("fuse: %v", err)
			return
		}
	}
}

// usage is what a process takes of the machine.
type usage struct{ threads, descriptors, kilobytes int }

func usageOf(t *testing.T, p *process) (u usage) {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(p.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir + "/task")
	fds, err2 := os.ReadDir(dir + "/fd")
	status, err3 := os.ReadFile(dir + "/status")
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(rest, &u.kilobytes); err != nil {
		t.Fatal(err)
	}
	u.threads, u.descriptors = len(tasks), len(fds)
	return u
}

// A user registers a page of a file of FUSE that never answers, and has 400 ports read it through
// root's node, each of which ends at once. What the node takes is bounded; the ports of another
// user are served; and all of it goes when the file system does.
func TestRootHeldByFuse(t *testing.T) {
	longtest.Skip(t)
	need(t, "setpriv")
	const (
		attacks = 400
		// ports.copiesPerUser run, with a thread each, and ports.copiesWaiting wait; each has two
		// descriptors.
		running, waiting = 16, 128
		threads          = running + 16
		descriptors      = 2*(running+waiting) + 32
		kilobytes        = 64 << 10
	)
	ns, bin := netnstest.New(t), t.TempDir()
	if err := testlab.Into(bin, "exnet/cmd/exn-tun", "./testdata/held"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(bin), 0o755); err != nil {
		t.Fatal(err)
	}
	file := newSilentFile(t)
	node := startIn(t, ns, nil, filepath.Join(bin, "exn-tun"), "up", "--dir", t.TempDir(), "--fair", "--addr", "10.2.0.1/24")
	node.says(t, "is up")
	held := func(uid, path string, n int) *process {
		// It ends before the processes do: they cannot be killed while one of them reads it.
		defer t.Cleanup(file.gone)
		p := startIn(t, ns, nil, "setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", filepath.Join(bin, "held"), path, strconv.Itoa(n))
		p.says(t, "done")
		return p
	}
	held("65533", "", 50)
	before := usageOf(t, node)
	held("65534", file.path(), attacks)
	eventually(t, func() error {
		if file.reads.Load() == 0 {
			return errors.New("nobody reads the file")
		}
		return nil
	})
	during := usageOf(t, node)
	t.Logf("node before %+v, during %+v", before, during)
	if during.threads > before.threads+threads || during.descriptors > before.descriptors+descriptors || during.kilobytes > before.kilobytes+kilobytes {
		t.Errorf("the node has %+v after %d attacks, %+v before", during, attacks, before)
	}
	held("65533", "", 50)
	file.gone()
	eventually(t, func() error {
		after := usageOf(t, node)
		if after.descriptors > before.descriptors+32 {
			return fmt.Errorf("the node has %+v when the file system has gone, %+v before", after, before)
		}
		return nil
	})
	t.Logf("after %+v", usageOf(t, node))
}

package emp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// files returns the names in a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestJoin(t *testing.T) {
	dir := tempDir(t)
	a := join(t, Config{Dir: dir, Addrs: prefixes("10.2.0.8/24", "fd00::8/64")})
	b := join(t, Config{Dir: dir, Node: id(3)})
	c := join(t, Config{Dir: dir, Node: id(0)})
	d := join(t, Config{Dir: dir})
	for i, m := range []*Member{a, b, c, d} {
		if want := []fabric.NodeID{1, 3, 0, 2}[i]; m.ID() != want {
			t.Errorf("node %d, want %d", m.ID(), want)
		}
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	alive, err := List(dir)
	if err != nil || len(alive) != 4 || alive[1].Token != a.Self().Token || !slices.Equal(alive[1].Addrs, a.Self().Addrs) {
		t.Errorf("%+v, %v", alive, err)
	}
	if alive[1].PID != os.Getpid() || !alive[1].Since.Equal(a.Self().Since) {
		t.Errorf("%+v, want %+v", alive[1], a.Self())
	}

	for name, c := range map[string]struct {
		cfg  Config
		want error
		text string
	}{
		"same ID":    {Config{Node: id(3)}, fabric.ErrInUse, "node 3"},
		"same IPv4":  {Config{Addrs: prefixes("10.2.0.8/16")}, ErrAddress, "node 1 has 10.2.0.8"},
		"MAC prefix": {Config{MAC: func(fabric.NodeID) string { return "2e:00:00:00:00:01" }}, ErrConfig, "same MAC prefix"},
		"topology":   {Config{Topology: "mesh 4"}, ErrConfig, "has no topology, this node has the topology mesh 4: use the same topology"},
		"same IPv6":  {Config{Addrs: prefixes("10.2.0.9/24", "fd00::8/64")}, ErrAddress, "node 1 has fd00::8"},
	} {
		c.cfg.Dir = dir
		m, err := Join(c.cfg)
		if m != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v in one line", name, err, c.want)
		}
	}
	// What failed leaves nothing.
	want := []string{"lock", "node-0.json", "node-0.sock", "node-1.json", "node-1.sock", "node-2.json", "node-2.sock", "node-3.json", "node-3.sock"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %v", got)
	}
	for range 2 {
		if err := a.Leave(); err != nil {
			t.Error(err)
		}
	}
	if m := join(t, Config{Dir: dir, Addrs: prefixes("10.2.0.8/24")}); m.ID() != 1 {
		t.Errorf("node %d, want the one that is free again", m.ID())
	}
}

// What a crash left is removed, at whatever point it came.
//
// +checklocksignore: nobody else is there
func TestJoinAfterCrash(t *testing.T) {
	dir := tempDir(t)
	a := join(t, Config{Dir: dir})
	for _, name := range []string{"node-2.sock", "node-3.json", "node-3.sock", "node-3.ctl", "node-4.json.new", "node-65536.json", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := join(t, Config{Dir: dir}); got.ID() != 2 {
		t.Errorf("node %d", got.ID())
	}
	want := []string{"lock", "node-1.json", "node-1.sock", "node-2.json", "node-2.sock", "node-65536.json", "notes"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %v", got)
	}
	if err := a.Leave(); err != nil {
		t.Error(err)
	}
	// Clean does the same where nobody is left.
	gone := tempDir(t)
	b := join(t, Config{Dir: gone})
	b.file.Close()
	b.ln.Close()
	dead, err := Clean(gone)
	if err != nil || !slices.Equal(dead, []fabric.NodeID{1}) {
		t.Errorf("%v, %v", dead, err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory: %v", err)
	}
	b.left = true
	if dead, err := Clean(gone); err != nil || dead != nil {
		t.Errorf("%v, %v", dead, err)
	}
}

// A directory that was there stays.
func TestJoinExistingDirectory(t *testing.T) {
	dir := t.TempDir()
	m := join(t, Config{Dir: dir})
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"lock"}) {
		t.Errorf("files %v", got)
	}
}

// Clean leaves nothing in a directory that no node has used.
func TestCleanUnusedDirectory(t *testing.T) {
	dir := t.TempDir()
	if dead, err := Clean(dir); err != nil || dead != nil {
		t.Errorf("%v, %v", dead, err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("files %v", got)
	}
}

func TestJoinBadDirectory(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(base, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"a file":   {Config{Dir: file}, "not a directory"},
		"in one":   {Config{Dir: filepath.Join(file, "lab")}, "not a directory"},
		"open":     {Config{Dir: open}, "everybody may write"},
		"too long": {Config{Dir: filepath.Join(base, strings.Repeat("x", 100))}, "too long for a socket"},
		"no group": {Config{Dir: filepath.Join(base, "lab"), Group: "no-such-group"}, "groupadd no-such-group"},
	} {
		if _, err := Join(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := List(filepath.Join(base, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("list: %v", err)
	}
}

func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skip("mounting a tmpfs:", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestRootJoinFullFileSystem(t *testing.T) {
	dir := mountTmpfs(t, "size=16k,mode=700")
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "lab")} {
		_, err := Join(Config{Dir: d})
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "make room") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
	if got := files(t, dir); !slices.Equal(got, []string{"full", "lock"}) {
		t.Errorf("files %v", got)
	}
}

func TestRootJoinReadOnlyFileSystem(t *testing.T) {
	dir := mountTmpfs(t, "size=16k,mode=700")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "lab")} {
		_, err := Join(Config{Dir: d})
		if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "can be written") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
}

func TestRootJoinGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := tempDir(t)
	const gid = 4321
	m := join(t, Config{Dir: dir, Group: "4321"})
	st, err := os.Stat(dir)
	if err != nil || st.Mode() != fs.ModeDir|fs.ModeSetgid|0o770 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	for _, name := range append(files(t, dir), ".") {
		path := filepath.Join(dir, name)
		if got := gidOf(path); got != gid {
			t.Errorf("%s: group %d", name, got)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o060 != 0o060 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	for _, c := range []struct {
		uid    uint32
		groups []uint32
		want   bool
	}{
		{0, nil, true},
		{1000, []uint32{1000, gid}, true},
		{1000, []uint32{gid + 1}, false},
		{1000, nil, false},
	} {
		if got := m.dir.mayRun(c.uid, c.groups); got != c.want {
			t.Errorf("user %d of groups %v: %v", c.uid, c.groups, got)
		}
	}
	if m.dir.foreign = true; !m.dir.mayRun(overflowUID, nil) || m.dir.mayRun(1000, nil) {
		t.Error("in a user namespace, users of others are left to the directory's permissions, and only they")
	}
	alone := join(t, Config{Dir: tempDir(t)})
	if alone.dir.mayRun(1000, []uint32{uint32(alone.dir.gid)}) {
		t.Error("the group of a directory that is its user's alone may join")
	}
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/nowhere")
	want := "/nowhere/exn/lab"
	if os.Geteuid() == 0 && !inUserNS() {
		want = "/run/exn/lab"
	}
	if got, err := DefaultDir("lab"); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "-x", "x y", strings.Repeat("x", 33)} {
		if _, err := DefaultDir(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestLockIsWaitedFor(t *testing.T) {
	d := join(t, Config{Dir: tempDir(t)}).dir
	first, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		f, err := d.lock()
		if err == nil {
			err = f.Close()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Errorf("locked twice: %v", err)
	default:
	}
	first.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// Nodes of a topology get the IDs that it has.
func TestJoinTopology(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Topology: "even", Has: func(n fabric.NodeID) bool { return n%2 == 0 }}
	for _, want := range []fabric.NodeID{2, 4} {
		if m := join(t, cfg); m.ID() != want {
			t.Errorf("node %d, want %d", m.ID(), want)
		}
	}
	cfg.Node = new(fabric.NodeID(3))
	if m, err := Join(cfg); m != nil || !errors.Is(err, ErrConfig) {
		t.Errorf("node 3: %v", err)
	}
}

// TestNameOfDirectSockets keeps a fabric from having the directory of the brokers.
func TestNameOfDirectSockets(t *testing.T) {
	if err := CheckName("ds"); !errors.Is(err, ErrConfig) {
		t.Errorf("ds: %v", err)
	}
	if err := CheckName("ds1"); err != nil {
		t.Error(err)
	}
}

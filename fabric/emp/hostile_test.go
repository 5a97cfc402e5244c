package emp

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a member of the group puts into the directory has a node write nothing
// elsewhere, and wait for nothing.
func TestHostileFiles(t *testing.T) {
	path := tempDir(t)
	join(t, Config{Dir: path})
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := d.lock()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer lock.Close()
		for _, name := range []string{"groups.new", "node-7.json.new"} {
			if err := os.Symlink(victim, d.file(name)); err != nil {
				t.Error(err)
			}
		}
		if err := unix.Mkfifo(d.file("node-9.json"), 0o600); err != nil {
			t.Error(err)
		}
		alive, _, err := d.listNodes()
		if len(alive) != 1 {
			t.Errorf("%v, %v", alive, err)
		}
		self := groupMember{alive[0].Node, alive[0].Token}
		_ = d.editGroups(func(f *groupsFile) { f.setMember(self, map[netip.Addr]bool{netip.MustParseAddr("239.1.1.1"): true}) })
		if f, err := d.publish(Description{Version: Version, Node: 7}); err == nil {
			f.Close()
		}
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatal("it waits for a FIFO")
	}
	if err := os.Remove(d.file(lockName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, d.file(lockName)); err != nil {
		t.Fatal(err)
	}
	if l, err := d.lock(); err == nil {
		l.Close()
		t.Error("it locks what a link leads to")
	}
	if st, err := os.Stat(victim); err != nil || st.Mode() != 0o600 || st.Size() != 6 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := os.Lstat(d.file("node-9.json")); err == nil {
		if _, dead, _ := d.listNodes(); len(dead) != 2 { // 9, and 7, whose file is closed
			t.Errorf("dead: %v", dead)
		}
	}
	if err := os.Remove(d.file(lockName)); err != nil { // or Leave is stuck
		t.Fatal(err)
	}
}

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeProcess writes a process to a folder that stands for /proc.
func fakeProcess(t *testing.T, proc string, pid int, inode uint64, environ string, cgroup string) string {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fmt.Sprintf("net:[%d]", inode), filepath.Join(dir, "ns/net")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"environ": environ, "cgroup": cgroup, "maps": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func mustFind(t *testing.T, s *search, now time.Time) map[uint64]int {
	t.Helper()
	found, err := s.findAskers(now, 1)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A namespace with very many processes keeps no other from being found, and a look ends.
func TestSearchIsFair(t *testing.T) {
	proc := t.TempDir()
	const many = 300
	big := strings.Repeat("A=0123456789\x00", 1<<12)
	for pid := range many {
		fakeProcess(t, proc, 1000+pid, 100, big, "")
	}
	fakeProcess(t, proc, 10, 200, "EXNET=1\x00", "")
	s, now := newSearch(proc), time.Now()
	if found := mustFind(t, s, now); found[200] != 10 {
		t.Error("the other namespace is not found by the first look: ", found)
	}
	if err := os.WriteFile(filepath.Join(proc, "1000/environ"), []byte("PATH=/\x00EXNET=1\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	for looks := 0; ; looks++ {
		if found := mustFind(t, s, now); found[100] != 0 {
			break
		}
		if now = now.Add(lookTime); looks > 10_000 {
			t.Fatal("the one among many is never found")
		}
	}
}

// A process that becomes another program is looked at again, and one that has gone is forgotten.
func TestSearchAgain(t *testing.T) {
	proc := t.TempDir()
	dir := fakeProcess(t, proc, 10, 200, "PATH=/\x00", "")
	s, now := newSearch(proc), time.Now()
	if found := mustFind(t, s, now); len(found) > 0 {
		t.Error("it asks for nothing: ", found)
	}
	for _, later := range []time.Duration{lookTime, youngTime + againTime} {
		for _, asks := range []bool{true, false} {
			env := "PATH=/\x00"
			if asks {
				env = "LD_PRELOAD=/x/libexnds.so\x00"
			}
			if err := os.WriteFile(filepath.Join(dir, "environ"), []byte(env), 0o644); err != nil {
				t.Fatal(err)
			}
			if now = now.Add(later); !asks {
				now = now.Add(againTime)
			}
			if found := mustFind(t, s, now); (found[200] != 0) != asks {
				t.Errorf("%v later: %v, want %v", later, found, asks)
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if found := mustFind(t, s, now); len(found) > 0 || len(s.known) > 0 {
		t.Error("it has gone: ", found, s.known)
	}
}

// A process whose memory never answers costs its own container, and no other.
func TestSearchStuck(t *testing.T) {
	proc := t.TempDir()
	cgroup := "0::/machine/libpod-" + strings.Repeat("ab", 32) + ".scope\n"
	dir := fakeProcess(t, proc, 10, 200, "", cgroup)
	fakeProcess(t, proc, 11, 201, "EXNET=1\x00", cgroup)
	fakeProcess(t, proc, 12, 300, "EXNET=1\x00", "")
	pipe := filepath.Join(dir, "environ")
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o644); err != nil { // to open it waits for a writer
		t.Fatal(err)
	}
	s, now := newSearch(proc), time.Now()
	for looks := 0; mustFind(t, s, now)[300] != 12; looks++ { // the one that is stuck may have taken the time of the first
		if now = now.Add(lookTime); looks > 1 {
			t.Fatal("another container is not found")
		}
	}
	for range 5 {
		now = now.Add(lookTime)
		mustFind(t, s, now)
	}
	if len(s.stuck) != 1 {
		t.Errorf("%d readers wait", len(s.stuck))
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pipe, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.Close() // it answers
	for looks := 0; mustFind(t, s, now)[201] != 11; looks++ {
		if now = now.Add(lookTime); looks > 10_000 {
			t.Fatal("its container is not looked at again")
		}
		time.Sleep(time.Millisecond)
	}
}

// Of very many processes a look comes by a part, the next one goes on from there, and what has gone
// is forgotten when all were come by.
func TestSearchGoesOn(t *testing.T) {
	proc := t.TempDir()
	const many = 35
	for pid := range many {
		fakeProcess(t, proc, 1000+pid, uint64(100+pid), "EXNET=1\x00", "")
	}
	s, now := newSearch(proc), time.Now()
	defer s.endScan()
	s.limit = 10
	for looks := 1; looks <= 4; looks++ {
		mustFind(t, s, now)
		if n := len(s.known); n != min(10*looks, many) {
			t.Errorf("%d processes are known after %d looks", n, looks)
		}
	}
	for len(mustFind(t, s, now)) < many { // they are read in turns
	}
	if err := os.RemoveAll(filepath.Join(proc, "1007")); err != nil {
		t.Fatal(err)
	}
	for range 8 { // one whole scan at least
		mustFind(t, s, now)
	}
	if s.known[1007] != nil || len(s.known) != many-1 {
		t.Errorf("%d processes are known", len(s.known))
	}
	// Who is met at the door is known on, wherever the scan is.
	mustFind(t, s, now)
	fakeProcess(t, proc, 7, 99, "EXNET=1\x00", "")
	for !s.readNewcomer(7, 99, now) { // a busy machine may take too long
		mustFind(t, s, now)
	}
	for range 8 {
		if found := mustFind(t, s, now); found[99] != 7 {
			t.Fatalf("it is forgotten: %v", found)
		}
	}
}

// While a scan of very many processes goes on, a namespace is found by a process that is there,
// whichever of its processes have ended since they were seen.
func TestSearchEnded(t *testing.T) {
	proc := t.TempDir()
	const many, others = 20, 40
	for pid := range many {
		fakeProcess(t, proc, 1000+pid, 100, "EXNET=1\x00", "")
	}
	for pid := range others {
		fakeProcess(t, proc, 2000+pid, 200, "", "")
	}
	s, now := newSearch(proc), time.Now()
	defer s.endScan()
	s.limit = 10
	asking := func() (n int) {
		for _, p := range s.known {
			if p.asks {
				n++
			}
		}
		return n
	}
	for asking() < many || s.list != nil {
		mustFind(t, s, now)
	}
	for pid := range many - 1 {
		if err := os.RemoveAll(filepath.Join(proc, fmt.Sprint(1000+pid))); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // of which none ends the scan
		if found := mustFind(t, s, now); found[100] != 1000+many-1 {
			t.Errorf("it is found by %d", found[100])
		}
	}
	for pid := range s.known { // the number is another's by now
		if pid >= 2000 {
			s.known[pid].inode, s.known[pid].asks = 300, true
		}
	}
	if found := mustFind(t, s, now); found[300] != 0 {
		t.Errorf("a namespace is found by %d, which is in another one", found[300])
	}
}

package e2e

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/memory/pager"
	"exnet/test/testlab"
)

// fills is a program with 24 MiB, which it fills, and after a word of the test (a file) changes.
const fills = `
import hashlib, os, sys, time
b = bytearray().join(hashlib.sha256(b'%d' % i).digest() * 32768 for i in range(24))
open(sys.argv[1] + '.filled', 'w').close()
while not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.01)
for round in range(3):
    for i in range(0, len(b), 4096): b[i] ^= i >> 12 & 255
    open(sys.argv[1] + '.round%d' % round, 'w').close()
print(hashlib.sha256(b).hexdigest())
`

// farMemory is a lender on host 1 and a borrower on host 2.
type farMemory struct {
	*site
	lender *process
	device string // nbdkit's URI on host 2
	nbdkit *process
	image  []byte
}

// needFarMemory skips the test without the programs that it runs.
func needFarMemory(t *testing.T) {
	t.Helper()
	needRun(t, "nbdkit", "nbdcopy", "python3", "make", "cc")
	if err := pager.Check(); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("/usr/include/nbdkit-plugin.h"); err != nil {
		t.Skip(err)
	}
}

// lends starts the node that lends.
func (m *farMemory) lends(more ...string) {
	m.t.Helper()
	m.lender = m.up(1, append([]string{"--lend", "256M"}, more...)...)
}

// serveDevice starts nbdkit with a device of host 1's memory, which has the image then.
func (m *farMemory) serveDevice() {
	m.t.Helper()
	m.image = make([]byte, 4<<20)
	for i := range m.image {
		m.image[i] = byte(rand.Int())
	}
	if err := os.WriteFile(filepath.Join(m.dir, "image"), m.image, 0o600); err != nil {
		m.t.Fatal(err)
	}
	if out, err := exec.Command("make", "-s", "-C", "../memory/c", "BUILD="+m.bin).CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	socket := filepath.Join(m.dir, "nbd")
	m.nbdkit = startIn(m.t, m.hosts[1], nil, "nbdkit", "-f", "-U", socket, filepath.Join(m.bin, "nbdkit-exnet-plugin.so"), "size=4M", "node=1")
	m.nbdkit.until(m.t, "socket", func() bool { _, err := os.Stat(socket); return err == nil })
	m.device = "nbd+unix:///?socket=" + socket
	m.in(m.hosts[1], "nbdcopy", filepath.Join(m.dir, "image"), m.device)
}

// sameDevice checks what is on the device.
func (m *farMemory) sameDevice() {
	m.t.Helper()
	back := filepath.Join(m.dir, "back")
	m.in(m.hosts[1], "nbdcopy", m.device, back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, m.image) {
		m.t.Errorf("the device has other bytes: %v", err)
	}
}

// paged starts the program under exn-mem on host 2, and waits until its memory is filled.
func (m *farMemory) paged(name string) *process {
	m.t.Helper()
	p := startIn(m.t, m.hosts[1], nil, filepath.Join(m.bin, "exn-mem"), "run", "--local", "8M", "--remote", "64M", "--node", "1", "--stats", "--",
		"python3", "-c", fills, filepath.Join(m.dir, name))
	m.reaches(p, name+".filled")
	return p
}

// reaches waits until a program has made a file.
func (m *farMemory) reaches(p *process, file string) {
	m.t.Helper()
	p.until(m.t, file, func() bool { _, err := os.Stat(filepath.Join(m.dir, file)); return err == nil })
}

// goOn has a program that is filled go on.
func (m *farMemory) goOn(name string) {
	m.t.Helper()
	m.make(name + ".go")
}

// sum is the checksum that the program prints, and whether it fetched what it had elsewhere.
func (m *farMemory) sum(p *process) string {
	m.t.Helper()
	out := p.wait(m.t)
	if !strings.Contains(out, " fetched") || strings.Contains(out, " 0 fetched") {
		m.t.Errorf("nothing came from the lender: %s", out)
	}
	sum, _, _ := strings.Cut(out, "\n")
	return sum
}

// cut takes the cable of host 1 away for a moment, and returns how long it was.
func (m *farMemory) cut() time.Duration {
	m.t.Helper()
	begin := time.Now()
	m.in(m.router, "ip", "link", "set", "r1", "down")
	time.Sleep(300 * time.Millisecond)
	m.in(m.router, "ip", "link", "set", "r1", "up")
	return time.Since(begin)
}

// lostTime is less than the links need to give a neighbour up.
const lostTime = 2 * time.Second

// Memory of another host, encrypted, for a program under exn-mem and as a block device: what is
// written is right, a cable that was away for a moment costs time only, a lender that is killed is
// one line and SIGBUS here and EIO there, and the next lender is found.
func TestRootHostsMemory(t *testing.T) {
	needFarMemory(t)
	checkLeaks(t)
	m := &farMemory{site: newSite(t)}
	if err := testlab.Into(m.bin, "exnet/cmd/exn-mem"); err != nil {
		t.Fatal(err)
	}
	m.key("ca", "--out", "ca")
	for i := 1; i <= 2; i++ {
		m.key("node", "--node", strconv.Itoa(i), "--ca", "ca", "--out", "node"+strconv.Itoa(i))
	}
	m.goOn("plain")
	want := strings.TrimSpace(m.in(m.hosts[1], "python3", "-c", fills, filepath.Join(m.dir, "plain")))
	m.lends()
	two := m.up(2, "--join", m.at(1))
	m.linked(true, 1, 2)
	m.serveDevice()
	m.sameDevice()

	healed := m.paged("healed")
	m.goOn("healed")
	m.reaches(healed, "healed.round0")
	if away := m.cut(); away > lostTime {
		t.Logf("this machine is busy: the cable was away for %v, and nothing is known of that", away)
		healed.stop()
	} else {
		if got := m.sum(healed); got != want {
			t.Errorf("after the cut %q, want %q", got, want)
		}
		m.sameDevice()
	}

	killed := m.paged("killed")
	m.lender.stop()
	m.goOn("killed")
	// It could be a link that is away: that another lender has its place is known when it is there.
	m.lends("--join", m.at(2))
	m.linked(true, 1, 2)
	<-killed.done
	var exit *exec.ExitError
	if !errors.As(killed.err, &exit) || exit.ExitCode() != 128+int(unix.SIGBUS) {
		t.Errorf("without its lender the program ended with %v", killed.err)
	}
	if lines := linesWith(killed.out.String(), "exn-mem: memory of process "); len(lines) != 1 || !strings.Contains(lines[0], "SIGBUS") {
		t.Errorf("%d lines, want one that says what is lost: %s", len(lines), killed.out.String())
	}
	if out, err := runIn(t, m.hosts[1], nil, "nbdcopy", m.device, filepath.Join(m.dir, "lost")); err == nil || !strings.Contains(out, "Input/output error") {
		t.Errorf("the device without its lender: %v, %s", err, out)
	}
	if lines := linesWith(m.nbdkit.out.String(), "its lender is gone"); len(lines) != 1 {
		t.Errorf("%d lines of nbdkit, want one: %s", len(lines), m.nbdkit.out.String())
	}

	again := m.paged("again")
	m.goOn("again")
	if got := m.sum(again); got != want {
		t.Errorf("with the lender that came back %q, want %q", got, want)
	}
	for _, p := range []*process{m.lender, two} {
		p.terminate(t)
	}
}

// linesWith returns the lines of a text that contain another.
func linesWith(text, part string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

package e2e

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/internal/longtest"
	"exnet/test/testlab"
)

var cutsTime = flag.Duration("memory.cuts", 10*time.Minute, "how long the link between lender and borrower is cut again and again")

// counts is a program with 24 MiB. Each page has its number and how often it was written; in each
// round all are checked, and written again in an order of chance, until the test says stop.
const counts = `
import os, random, struct, sys
pages, wrong, rounds = 6144, 0, 0
b, gen = bytearray(pages * 4096), [0] * pages
for i in range(pages): struct.pack_into('<QQ', b, i * 4096 + i % 4080, i, 0)
open(sys.argv[1] + '.filled', 'w').close()
order = list(range(pages))
while not os.path.exists(sys.argv[1] + '.stop'):
    random.shuffle(order)
    for i in order:
        at = i * 4096 + i % 4080
        wrong += struct.unpack_from('<QQ', b, at) != (i, gen[i])
        gen[i] += 1
        struct.pack_into('<QQ', b, at, i, gen[i])
    rounds += 1
print('rounds %d wrong %d' % (rounds, wrong))
`

// cutTCP resets all connections of the link at host 1.
func (m *farMemory) cutTCP() {
	for _, end := range []string{"sport", "dport"} {
		_, _ = runIn(m.t, m.hosts[0], nil, "ss", "-K", end, "=", ":4791") // none may be there
	}
}

// fio starts fio on host 2, which writes to a device and verifies what it reads.
func (m *farMemory) fio(uri string) *process {
	return startIn(m.t, m.hosts[1], nil, "fio", "--name=verify", "--ioengine=nbd", "--uri="+uri, "--rw=randwrite", "--bssplit=4k/50:16k/30:256k/20",
		"--size=64M", "--iodepth=16", "--verify=crc32c", "--verify_backlog=64", "--verify_fatal=1", "--verify_state_save=0", "--time_based",
		"--runtime="+strconv.Itoa(int(cutsTime.Seconds())))
}

// The link between the host that lends and the one that borrows is cut every 0.1 to 3 seconds. What
// is in the leases is right, for a program under exn-mem and for a block device, and no operation
// fails: as for a block device over TCP and exn0, which is the control.
func TestRootHostsMemoryCuts(t *testing.T) {
	longtest.Nightly(t)
	needFarMemory(t)
	needRun(t, "fio", "ss")
	checkLeaks(t)
	m := &farMemory{site: newSite(t)}
	if err := testlab.Into(m.bin, "exnet/cmd/exn-mem"); err != nil {
		t.Fatal(err)
	}
	m.key("ca", "--out", "ca")
	for i := 1; i <= 2; i++ {
		m.key("node", "--node", strconv.Itoa(i), "--ca", "ca", "--out", "node"+strconv.Itoa(i))
	}
	m.lends()
	two := m.up(2, "--join", m.at(1))
	m.linked(true, 1, 2)
	if out, err := exec.Command("make", "-s", "-C", "../memory/c", "BUILD="+m.bin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	socket := filepath.Join(m.dir, "nbd")
	device := startIn(t, m.hosts[1], nil, "nbdkit", "-f", "-U", socket, filepath.Join(m.bin, "nbdkit-exnet-plugin.so"), "size=64M", "node=1")
	device.until(t, "socket", func() bool { _, err := os.Stat(socket); return err == nil })
	control := startIn(t, m.hosts[0], nil, "nbdkit", "-f", "-p", "10809", "memory", "64M")
	control.listens(t, "10809")
	paged := startIn(t, m.hosts[1], nil, filepath.Join(m.bin, "exn-mem"), "run", "--local", "8M", "--remote", "64M", "--node", "1", "--stats", "--",
		"python3", "-c", counts, filepath.Join(m.dir, "counts"))
	m.reaches(paged, "counts.filled")
	links := m.peers(2)[1].Links
	verified, controlled := m.fio("nbd+unix:///?socket="+socket), m.fio("nbd://10.2.0.1")
	cuts := 0
	for end := time.Now().Add(*cutsTime); time.Now().Before(end); cuts++ {
		time.Sleep(100*time.Millisecond + rand.N(2900*time.Millisecond))
		select {
		case <-paged.done:
			t.Fatalf("after %d cuts, under exn-mem: %v\n%s", cuts, paged.err, &paged.out)
		case <-verified.done:
			if verified.err != nil {
				t.Fatalf("after %d cuts, fio: %v\n%s\nnbdkit\n%s", cuts, verified.err, &verified.out, &device.out)
			}
		default:
		}
		m.cutTCP()
	}
	m.make("counts.stop")
	m.linked(true, 1, 2)
	out := paged.wait(t)
	t.Logf("%d cuts, %d links in %v; exn-mem: %s", cuts, m.peers(2)[1].Links-links, *cutsTime, out)
	if !strings.Contains(out, " wrong 0\n") || strings.Contains(out, " 0 fetched") {
		t.Errorf("%s", out)
	}
	for what, p := range map[string]*process{"a lease": verified, "TCP over exn0, the control": controlled} {
		<-p.done
		t.Logf("fio over %s: %v\n%s", what, p.err, strings.Join(linesWith(p.out.String(), "IOPS="), ""))
		if p == verified && p.err != nil {
			t.Errorf("fio over %s: %v\n%s", what, p.err, &p.out)
		}
	}
	for _, p := range []*process{device, control, two, m.lender} {
		p.terminate(t)
	}
}

// make makes a file that a program waits for.
func (m *farMemory) make(file string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, file), nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

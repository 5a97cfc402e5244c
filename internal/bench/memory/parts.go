package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/memory"
)

const (
	pageSize = 4096
	mebibyte = 1 << 20
)

// scaled is a size or a count, less in a test.
func (l *lab) scaled(n int) int { return max(1, n/l.scale) }

// span is a time, less in a test.
func (l *lab) span(d time.Duration) time.Duration { return d / time.Duration(l.scale) }

// reader reads n bytes at a place of the lease, or of other memory.
type reader func(p []byte, off int64) error

// rate calls read from many goroutines, each with a buffer of n bytes and at places at random, and
// returns how often it did so in a second.
func rate(d time.Duration, goroutines, n int, read reader) (float64, error) {
	var all sync.WaitGroup
	var stop atomic.Bool
	var total atomic.Int64
	errs := make([]error, goroutines)
	begin := time.Now()
	for i := range goroutines {
		all.Go(func() {
			p := make([]byte, n)
			at := rand.N(int64(leased / n))
			for !stop.Load() && errs[i] == nil {
				for range 16 {
					at = (at + 16381) % int64(leased/n) // far from the last place
					if errs[i] = read(p, at*int64(n)); errs[i] != nil {
						break
					}
					total.Add(1)
				}
			}
		})
	}
	time.AfterFunc(d, func() { stop.Store(true) })
	all.Wait()
	return float64(total.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}

func ofLease(s *memory.Segment) reader {
	return func(p []byte, off int64) error { _, err := s.ReadAt(p, off); return err }
}

func getPart() part {
	own := []byte(nil)
	ofOwn := func(p []byte, off int64) error { copy(p, own[off:]); return nil }
	const many = 64
	return part{
		name: "get", about: "4 KiB of a lease of the same host (GET); its control is a copy of own memory",
		figures: []figure{
			{"copy", pageSize, 1, "us", 0, ""},
			{"lease", pageSize, 1, "us", 0, "<= 2 us"},
			{"lease", 8, 1, "us", 0, ""},
			{"copy", pageSize, many, "GB/s", 3, ""},
			{"lease", pageSize, many, "GB/s", 3, ">= 0.6"},
		},
		prepare: func(context.Context, *lab) error {
			own = make([]byte, leased)
			for i := range own {
				own[i] = byte(i)
			}
			return nil
		},
		take: func(_ context.Context, l *lab) ([]float64, error) {
			var values []float64
			lease := ofLease(l.lease[borrower])
			for _, c := range []struct {
				read     reader
				n, count int
			}{{ofOwn, pageSize, 1}, {lease, pageSize, 1}, {lease, 8, 1}, {ofOwn, pageSize, many}, {lease, pageSize, many}} {
				v, err := rate(l.span(300*time.Millisecond), c.count, c.n, c.read)
				if err != nil {
					return nil, err
				}
				if c.count == 1 {
					v = 1e6 / v
				} else {
					v *= float64(c.n) / 1e9
				}
				values = append(values, v)
			}
			return values, nil
		},
	}
}

// paged is a command line under exn-mem, with the memory of a lease or the pager's own.
func (l *lab) paged(control bool, local, remote int, argv ...string) []string {
	line := []string{l.exnMem, "run", "--local", strconv.Itoa(local), "--remote", strconv.Itoa(remote)}
	if control {
		line = append(line, "--control")
	}
	return append(append(line, "--"), argv...)
}

// prepareExnMem has exn-mem build its library: no run is to wait for that.
func prepareExnMem(ctx context.Context, l *lab) error {
	_, err := l.run(ctx, borrower, l.paged(true, mebibyte, mebibyte, "true")...)
	return err
}

func faultPart() part {
	return part{
		name: "fault", about: "a read of a page that is elsewhere, at random, under exn-mem: 16 of 256 MiB here",
		figures: []figure{
			{"minor", pageSize, 1, "us", 1, ""},
			{"exn-mem control", pageSize, 1, "us", 1, ""},
			{"exn-mem lease", pageSize, 1, "us", 1, "<= 1.3"},
		},
		prepare: prepareExnMem,
		take: func(ctx context.Context, l *lab) ([]float64, error) {
			n := l.scaled(256)
			local, remote := max(n*mebibyte/16, mebibyte), 2*n*mebibyte
			return l.each(ctx,
				[]string{l.pages, "minor", strconv.Itoa(n)},
				l.paged(true, local, remote, l.pages, "random", strconv.Itoa(n)),
				l.paged(false, local, remote, l.pages, "random", strconv.Itoa(n)))
		},
	}
}

// each runs programs that print a number each.
func (l *lab) each(ctx context.Context, lines ...[]string) (values []float64, err error) {
	for _, argv := range lines {
		v, err := l.number(ctx, borrower, argv...)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

func rowPart() part {
	return part{
		name: "row", about: "1 GiB read in a row, half of it here; its control is a file of nbdfuse, mapped",
		needs: []string{"nbdkit", "nbdcopy", "nbdfuse"},
		figures: []figure{
			{"nbdfuse", 1 << 30, 1, "MB/s", 0, ""},
			{"all here", 1 << 30, 1, "MB/s", 0, ""},
			{"exn-mem control", 1 << 30, 1, "MB/s", 0, ""},
			{"exn-mem lease", 1 << 30, 1, "MB/s", 0, ">= 2"},
		},
		prepare: prepareRow,
		take: func(ctx context.Context, l *lab) ([]float64, error) {
			n := l.scaled(1024)
			size := strconv.Itoa(n)
			local, remote := n*mebibyte/2, n*mebibyte*5/4
			return l.each(ctx,
				[]string{l.pages, "file", size, filepath.Join(l.mounted, "nbd")},
				[]string{l.pages, "row", size},
				l.paged(true, local, remote, l.pages, "row", size),
				l.paged(false, local, remote, l.pages, "row", size))
		},
	}
}

// prepareRow starts nbdkit with a device in memory that is full of bytes, and nbdfuse.
func prepareRow(ctx context.Context, l *lab) error {
	if err := prepareExnMem(ctx, l); err != nil {
		return err
	}
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		return fmt.Errorf("%w: %w", errLeftOut, err)
	} else if err := f.Close(); err != nil {
		return err
	}
	socket := filepath.Join(l.dir, "row")
	if _, err := l.serve(borrower, "nbdkit", "-f", "-U", socket, "memory", fmt.Sprintf("size=%dM", l.scaled(1024)), "allocator=malloc"); err != nil {
		return err
	}
	if err := l.appears(ctx, socket); err != nil {
		return err
	}
	if err := l.fill(ctx, socket); err != nil {
		return err
	}
	l.mounted = filepath.Join(l.dir, "mnt")
	if err := os.Mkdir(l.mounted, 0o700); err != nil {
		return err
	}
	if _, err := l.serve(borrower, "nbdfuse", l.mounted, "nbd+unix:///?socket="+socket); err != nil {
		return err
	}
	// The mount is one of the namespace's own.
	return l.eventually(ctx, "nbdfuse", func() error {
		_, err := l.run(ctx, borrower, "test", "-f", filepath.Join(l.mounted, "nbd"))
		return err
	})
}

// fill has nbdcopy write all of a device.
func (l *lab) fill(ctx context.Context, socket string) error {
	fd, err := unix.MemfdCreate("dsbench", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "memfd")
	defer file.Close()
	block := make([]byte, mebibyte)
	for i := range block {
		block[i] = byte(i%251 + 1)
	}
	for range l.scaled(1024) {
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
	_, err = l.run(ctx, borrower, "nbdcopy", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), "nbd+unix:///?socket="+socket)
	return err
}

// appears waits for a file.
func (l *lab) appears(ctx context.Context, path string) error {
	return l.eventually(ctx, path, func() error { _, err := os.Stat(path); return err })
}

// What redis is asked for: of its keys of 1 KiB, number k with a probability of about 1/k (Zipf's
// law); the numbers are spread over the keys.
const (
	keys    = 200_000
	askFor  = "local k=math.floor(%[1]d^(tonumber(ARGV[1])/1000000)); return redis.call('get', 'key:' .. ((k*7919)%%%[1]d))"
	fillIn  = "for i=0,%d-1 do redis.call('set', 'key:' .. i, string.rep(string.char(97+i%%26), 1024)) end"
	clients = 50
)

func redisPart() part {
	return part{
		name: "redis", about: "GET by Zipf's law with half of redis's memory elsewhere; its control has all here",
		needs:   []string{"redis-server", "redis-cli", "redis-benchmark"},
		figures: []figure{{"all here", 1024, clients, "1/s", 0, ""}, {"exn-mem lease", 1024, clients, "1/s", 0, ">= 0.5"}},
		prepare: prepareRedis,
		take: func(ctx context.Context, l *lab) (values []float64, err error) {
			for _, port := range l.redisPorts {
				out, err := l.run(ctx, borrower, "redis-benchmark", "-p", port, "-n", strconv.Itoa(l.scaled(60_000)), "-r", "1000000",
					"-c", strconv.Itoa(clients), "--csv", "eval", fmt.Sprintf(askFor, l.scaled(keys)), "0", "__rand_int__")
				if err != nil {
					return nil, err
				}
				v, err := requests(out)
				if err != nil {
					return nil, err
				}
				values = append(values, v)
			}
			return values, nil
		},
	}
}

// requests finds the rate in what redis-benchmark prints: the second value of the last line.
func requests(out string) (float64, error) {
	f := strings.Split(lastLine(out), `","`)
	if len(f) < 2 {
		return 0, fmt.Errorf("redis-benchmark has printed %q", out)
	}
	return positive(f[1])
}

// prepareRedis starts one as ever, and then one with half the memory that the first has.
func prepareRedis(ctx context.Context, l *lab) error {
	if err := prepareExnMem(ctx, l); err != nil {
		return err
	}
	var used int
	for i := range l.redisPorts {
		port := strconv.Itoa(7001 + i) // of a namespace in which nothing else is
		l.redisPorts[i] = port
		argv := []string{"redis-server", "--save", "", "--appendonly", "no", "--port", port, "--bind", "127.0.0.1", "--lua-time-limit", "100000"}
		if i == 1 {
			argv = l.paged(false, max(used/2, mebibyte), 1<<30, argv...)
		}
		if _, err := l.serve(borrower, argv...); err != nil {
			return err
		}
		cli := func(args ...string) (string, error) {
			return l.run(ctx, borrower, append([]string{"redis-cli", "-p", port}, args...)...)
		}
		if err := l.eventually(ctx, "redis", func() error { _, err := cli("ping"); return err }); err != nil {
			return err
		}
		if _, err := cli("eval", fmt.Sprintf(fillIn, l.scaled(keys)), "0"); err != nil {
			return err
		}
		info, err := cli("info", "memory")
		if err != nil {
			return err
		}
		for line := range strings.Lines(info) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory_rss:"); ok && i == 0 {
				if used, err = strconv.Atoi(n); err != nil {
					return fmt.Errorf("redis: %w", err)
				}
			}
		}
	}
	return nil
}

func fioPart() part {
	const depth = 32
	return part{
		name: "fio", about: "random reads of 4 KiB by nbd, depth 32, of 256 MiB; its control is nbdkit's plugin memory",
		needs:   []string{"fio", "nbdkit"},
		figures: []figure{{"nbdkit memory", pageSize, depth, "1/s", 0, ""}, {"nbdkit exnet", pageSize, depth, "1/s", 0, ">= 0.8"}},
		prepare: prepareFio,
		take: func(ctx context.Context, l *lab) (values []float64, err error) {
			for _, name := range devices {
				v, err := l.fio(ctx, name, "--rw=randread", "--bs=4k", "--iodepth="+strconv.Itoa(depth), "--time_based",
					fmt.Sprintf("--runtime=%dms", l.span(2*time.Second).Milliseconds()))
				if err != nil {
					return nil, err
				}
				values = append(values, v)
			}
			return values, nil
		},
	}
}

var devices = []string{"memory", "exnet"}

// fio runs fio on a device, and returns the reads a second, or writes.
func (l *lab) fio(ctx context.Context, device string, args ...string) (float64, error) {
	line := []string{"fio", "--name=x", "--ioengine=nbd", "--uri=nbd+unix:///?socket=" + filepath.Join(l.dir, device),
		fmt.Sprintf("--size=%dM", l.scaled(256)), "--output-format=json"}
	out, err := l.run(ctx, borrower, append(line, args...)...)
	if err != nil {
		return 0, err
	}
	return operations(out)
}

// operations finds the operations a second in fio's JSON, before which it may say something.
func operations(out string) (float64, error) {
	var said struct {
		Jobs []struct {
			Error       int
			Read, Write struct{ IOPS float64 }
		}
	}
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &said); err != nil {
		return 0, fmt.Errorf("fio: %w", err)
	}
	if len(said.Jobs) != 1 || said.Jobs[0].Error != 0 {
		return 0, fmt.Errorf("fio has printed %q", out)
	}
	return said.Jobs[0].Read.IOPS + said.Jobs[0].Write.IOPS, nil
}

func prepareFio(ctx context.Context, l *lab) error {
	if _, err := exec.Command("nbdkit", "--dump-plugin", l.plugin).Output(); err != nil {
		return fmt.Errorf("%w: nbdkit has no plugin %s: make -C memory/c, and --plugin memory/c/build/nbdkit-exnet-plugin.so", errLeftOut, l.plugin)
	}
	plugin := l.plugin
	if strings.Contains(plugin, "/") {
		var err error
		if plugin, err = filepath.Abs(plugin); err != nil {
			return err
		}
	}
	for i, args := range [][]string{{"memory"}, {plugin}} {
		socket := filepath.Join(l.dir, devices[i])
		if _, err := l.serve(borrower, append(append([]string{"nbdkit", "-f", "-U", socket}, args...), fmt.Sprintf("size=%dM", l.scaled(256)))...); err != nil {
			return err
		}
		if err := l.appears(ctx, socket); err != nil {
			return err
		}
		if _, err := l.fio(ctx, devices[i], "--rw=write", "--bs=1M"); err != nil {
			return err
		}
	}
	return nil
}

func hostsPart() part {
	const many = 4
	return part{
		name: "hosts", about: "1 MiB of a lease of another host, over a veth pair, per busy core; its control is iperf3",
		needs: []string{"iperf3"},
		figures: []figure{
			{"iperf3", mebibyte, 1, "MB/s", 0, ""}, {"lease", mebibyte, 1, "MB/s", 0, ""}, {"lease", mebibyte, many, "MB/s", 0, ""},
			{"iperf3 per core", mebibyte, 1, "MB/s", 3, ""}, {"lease per core", mebibyte, 1, "MB/s", 3, ">= 0.7"},
			{"lease per core", mebibyte, many, "MB/s", 3, ">= 0.7"},
		},
		prepare: prepareHosts,
		take: func(ctx context.Context, l *lab) ([]float64, error) {
			var rates, cores []float64
			d := l.span(2 * time.Second)
			far := ofLease(l.lease[farBorrower])
			for _, take := range []func() (float64, error){
				func() (float64, error) { return l.iperf3(ctx, d) },
				func() (float64, error) { v, err := rate(d, 1, mebibyte, far); return v * mebibyte / 1e6, err },
				func() (float64, error) { v, err := rate(d, many, mebibyte, far); return v * mebibyte / 1e6, err },
			} {
				before, err := busy()
				if err != nil {
					return nil, err
				}
				begin := time.Now()
				v, err := take()
				if err != nil {
					return nil, err
				}
				elapsed := time.Since(begin)
				after, err := busy()
				if err != nil {
					return nil, err
				}
				rates = append(rates, v)
				cores = append(cores, v*elapsed.Seconds()/max(after-before, 10*time.Millisecond).Seconds())
			}
			return append(rates, cores...), nil
		},
	}
}

// iperf3 returns MB/s that the borrower's end receives.
func (l *lab) iperf3(ctx context.Context, d time.Duration) (float64, error) {
	seconds := strconv.Itoa(max(1, int(d.Seconds())))
	out, err := l.run(ctx, farBorrower, "iperf3", "-c", lenderAddr, "-R", "-J", "-t", seconds)
	if err != nil {
		return 0, err
	}
	return received(out)
}

// received finds the rate in iperf3's JSON, MB/s.
func received(out string) (float64, error) {
	var said struct {
		End struct {
			Sum struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		return 0, fmt.Errorf("iperf3: %w", err)
	}
	if said.End.Sum.Rate <= 0 {
		return 0, fmt.Errorf("iperf3 has printed %q", out)
	}
	return said.End.Sum.Rate / 8e6, nil
}

// Addresses of the two hosts.
const (
	lenderAddr   = "192.0.2.1"
	borrowerAddr = "192.0.2.2"
)

// prepareHosts starts two nodes that a veth pair joins.
func prepareHosts(ctx context.Context, l *lab) error {
	if _, err := l.run(ctx, farLender, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", l.spaces[farBorrower].Path()); err != nil {
		return err
	}
	for at, addr := range map[place]string{farLender: lenderAddr, farBorrower: borrowerAddr} {
		for _, line := range []string{"addr add " + addr + "/24 dev eth0", "link set eth0 up"} {
			if _, err := l.run(ctx, at, append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
				return err
			}
		}
	}
	if _, err := l.run(ctx, farLender, l.exnTun, "key", "ca", "--fabric", "lab", "--out", "ca"); err != nil {
		return err
	}
	for i, at := range []place{farLender, farBorrower} {
		n := strconv.Itoa(i + 1)
		if _, err := l.run(ctx, at, l.exnTun, "key", "node", "--fabric", "lab", "--node", n, "--ca", "ca", "--out", "node"+n); err != nil {
			return err
		}
		args := []string{"--dir", filepath.Join(l.dir, "host"+n), "--addr", "10.2.0." + n + "/24", "--listen", ":4791", "--key", "node" + n + ".key", "--trust", "ca.crt"}
		if at == farLender {
			args = append(args, "--lend", "1G")
		} else {
			args = append(args, "--join", lenderAddr)
		}
		if err := l.node(at, args...); err != nil {
			return err
		}
	}
	if err := l.borrow(ctx, farBorrower); err != nil {
		return err
	}
	if _, err := l.serve(farLender, "iperf3", "-s"); err != nil {
		return err
	}
	return l.eventually(ctx, "iperf3", func() error {
		return l.spaces[farBorrower].Do(func() error {
			c, err := net.Dial("tcp", lenderAddr+":5201")
			if err == nil {
				err = c.Close()
			}
			return err
		})
	})
}

package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/result"
	"exnet/memory"
)

// reader reads n bytes at a place of the lease, or of other memory.
type reader func(p []byte, off int64) error

// rate calls read from many goroutines, each with a buffer of n bytes and at places at random, and
// returns how often it did so in a second. Each goroutine reads some times, however short the time.
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
			for ended := false; !ended && errs[i] == nil; ended = stop.Load() {
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

func fioPart() part {
	const depth = 32
	return part{
		name: "fio", about: "random reads of 4 KiB by nbd, depth 32, of 256 MiB; its control is nbdkit's plugin memory",
		needs:   []string{"fio", "nbdkit"},
		figures: []figure{{"nbdkit memory", pageSize, depth, "1/s", 0, ""}, {"nbdkit exnet", pageSize, depth, "1/s", 0, ">= 0.8"}},
		prepare: prepareFio,
		take: func(ctx context.Context, l *lab) ([]float64, error) {
			args := []string{"--rw=randread", "--bs=4k", "--iodepth=" + strconv.Itoa(depth)}
			if l.scale == 1 {
				args = append(args, "--time_based", "--runtime=2000ms")
			} else { // in a short time, a busy machine may read nothing
				args = append(args, "--number_ios=1024")
			}
			return l.figures(ctx, operations, l.fio(devices[0], args...), l.fio(devices[1], args...))
		},
	}
}

var devices = []string{"memory", "exnet"}

// fio is the command line of fio on a device.
func (l *lab) fio(device string, args ...string) []string {
	return append([]string{"fio", "--name=x", "--ioengine=nbd", "--uri=nbd+unix:///?socket=" + filepath.Join(l.dir, device),
		fmt.Sprintf("--size=%dM", l.scaled(256)), "--output-format=json"}, args...)
}

// operations is how many reads, or else writes, a second fio's JSON has of a job that did not fail.
const operations = `(?s)"error"\s*:\s*0\b.*?"iops"\s*:\s*([1-9][0-9.e+]*)`

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
		if err := l.serve(borrower, append(append([]string{"nbdkit", "-f", "-U", socket}, args...), fmt.Sprintf("size=%dM", l.scaled(256)))...); err != nil {
			return err
		}
		if err := l.appears(ctx, socket); err != nil {
			return err
		}
		if _, err := l.run(ctx, borrower, l.fio(devices[i], "--rw=write", "--bs=1M")...); err != nil {
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
				before, _, err := result.BusyTime()
				if err != nil {
					return nil, err
				}
				begin := time.Now()
				v, err := take()
				if err != nil {
					return nil, err
				}
				elapsed := time.Since(begin)
				after, _, err := result.BusyTime()
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
	bits, err := l.figure(ctx, farBorrower, measure.Iperf3Rate, "iperf3", "-c", lenderAddr, "-R", "-J", "-t", seconds)
	return bits / 8e6, err
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
	if err := l.serve(farLender, "iperf3", "-s"); err != nil {
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

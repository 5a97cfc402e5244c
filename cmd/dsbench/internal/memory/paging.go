package memory

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
			return l.figures(ctx, printed,
				[]string{l.pages, "minor", strconv.Itoa(n)},
				l.paged(true, local, remote, l.pages, "random", strconv.Itoa(n)),
				l.paged(false, local, remote, l.pages, "random", strconv.Itoa(n)))
		},
	}
}

// printed is what pages.c prints.
const printed = `^([0-9.]+)$`

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
			return l.figures(ctx, printed,
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
	if err := l.serve(borrower, "nbdkit", "-f", "-U", socket, "memory", fmt.Sprintf("size=%dM", l.scaled(1024)), "allocator=malloc"); err != nil {
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
	if err := l.serve(borrower, "nbdfuse", l.mounted, "nbd+unix:///?socket="+socket); err != nil {
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
		take: func(ctx context.Context, l *lab) ([]float64, error) {
			var lines [][]string
			for _, port := range l.redisPorts {
				lines = append(lines, []string{"redis-benchmark", "-p", port, "-n", strconv.Itoa(l.scaled(60_000)), "-r", "1000000",
					"-c", strconv.Itoa(clients), "--csv", "eval", fmt.Sprintf(askFor, l.scaled(keys)), "0", "__rand_int__"})
			}
			return l.figures(ctx, requests, lines...)
		},
	}
}

// requests is the rate in what redis-benchmark prints: the second value of a line.
const requests = `","([0-9.]+)"`

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
		if err := l.serve(borrower, argv...); err != nil {
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

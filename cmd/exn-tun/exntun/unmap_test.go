package exntun

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Only what cannot have been written is given back.
func TestConstRanges(t *testing.T) {
	const maps = `00400000-00c6c000 r-xp 00000000 00:1c 5381 /usr/bin/exn-tun
00c6c000-0165e000 r--p 0086c000 00:1c 5381 /usr/bin/exn-tun
0165e000-01735000 rw-p 0125e000 00:1c 5381 /usr/bin/exn-tun
01735000-01779000 rw-p 00000000 00:00 0
7f10000000-7f10021000 r--p 00000000 00:1c 77 /usr/bin/exn-tun-other
7ffd1000-7ffd2000 r-xp 00000000 00:1c 5381 /usr/bin/exn-tun (deleted)
`
	want := []addressRange{{0x400000, 0xc6c000}, {0xc6c000, 0x165e000}}
	if got := constRanges(strings.NewReader(maps), "/usr/bin/exn-tun"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// The process has less of files in memory afterwards, and goes on.
func TestUnmapCode(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	for _, r := range constRanges(maps, exe) { // as if all of it had been used
		if _, _, errno := unix.RawSyscall(unix.SYS_MADVISE, r.from, r.to-r.from, unix.MADV_POPULATE_READ); errno != 0 {
			t.Skipf("MADV_POPULATE_READ: %v", errno)
		}
	}
	before := rssFile(t)
	if err := unmapCode(); err != nil {
		t.Fatal(err)
	}
	if after := rssFile(t); after >= before {
		t.Errorf("%d KB of files in memory, %d before", after, before)
	}
}

// What the first seconds have brought back is given back once more, unless the node ends before.
func TestUnmapTwice(t *testing.T) {
	for _, tt := range []struct {
		ends time.Duration
		want []time.Duration
	}{
		{time.Hour, []time.Duration{0, settleTime}},
		{settleTime / 2, []time.Duration{0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
			defer cancel()
			began := time.Now()
			var at []time.Duration
			unmapTwice(ctx, func() { at = append(at, time.Since(began)) })
			if !slices.Equal(at, tt.want) {
				t.Errorf("a node that ends after %v: %v, want %v", tt.ends, at, tt.want)
			}
		})
	}
}

// rssFile returns how much of files the process has mapped and in memory, in KB. The kernel counts
// those of a tmpfs, as /tmp often is, as shared memory.
func rssFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, name := range []string{"RssFile:", "RssShmem:"} {
		_, after, _ := strings.Cut(string(status), name)
		n, err := strconv.Atoi(strings.Fields(after)[0])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

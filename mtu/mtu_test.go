package mtu

import (
	"errors"
	"flag"
	"io"
	"strconv"
	"strings"
	"testing"
)

var _ flag.Value = (*Network)(nil)

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want uint64
	}{
		{"Ethernet header", EthernetHeaderLen, 14},
		{"IPv4 minimum, RFC 791", uint64(MinIPv4), 68},
		{"IPv6 minimum, RFC 8200", uint64(MinIPv6), 1280},
		{"thesis 5.4.3", uint64(Thesis), 65536},
		{"IPv4 maximum", uint64(MaxIPv4), 65535},
		{"TUN maximum", uint64(MaxTUN), 65535},
		{"exn0", uint64(Default), 65535},
		{"frame", uint64(MaxFrame), 8388608},
		{"packet in a frame", uint64(MaxFormat), 8388594},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want)
		}
	}
	// Every MTU that a flag can set must fit the frame format.
	if Default.Link() > MaxFrame {
		t.Errorf("frame of the default MTU: %d, above %d", Default.Link(), MaxFrame)
	}
}

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		n   int
		err string
	}{
		{1280, ""},
		{1500, ""},
		{9000, ""},
		{65535, ""},
		{100, "mtu: 100 is below 1280, the least that IPv6 allows (RFC 8200); use 1280..65535"},
		{1279, "mtu: 1279 is below 1280, the least that IPv6 allows (RFC 8200); use 1280..65535"},
		{65536, "mtu: 65536 is above 65535, the most that a TUN device and an IPv4 packet can have; use 1280..65535"},
		{0, "mtu: 0 is below 1280, the least that IPv6 allows (RFC 8200); use 1280..65535"},
		{-1, "mtu: -1 is below 1280, the least that IPv6 allows (RFC 8200); use 1280..65535"},
	} {
		n, err := New(tt.n)
		checkResult(t, strconv.Itoa(tt.n), n, err, tt.n, tt.err, ErrRange)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		err  string
		kind error
	}{
		{"1500", 1500, "", nil},
		{"65535", 65535, "", nil},
		{"", 0, `mtu: not an mtu: ""; use a number of bytes, 1280..65535`, ErrSyntax},
		{"9k", 0, `mtu: not an mtu: "9k"; use a number of bytes, 1280..65535`, ErrSyntax},
		{"1500.0", 0, `mtu: not an mtu: "1500.0"; use a number of bytes, 1280..65535`, ErrSyntax},
		{"0x5dc", 0, `mtu: not an mtu: "0x5dc"; use a number of bytes, 1280..65535`, ErrSyntax},
		{"99999999999999999999", 0, `mtu: not an mtu: "99999999999999999999"; use a number of bytes, 1280..65535`, ErrSyntax},
		// A value that would wrap into the range in 32 bits.
		{"4294968796", 0, "mtu: 4294968796 is above 65535, the most that a TUN device and an IPv4 packet can have; use 1280..65535", ErrRange},
	} {
		n, err := Parse(tt.in)
		checkResult(t, tt.in, n, err, tt.n, tt.err, tt.kind)
	}
}

func checkResult(t *testing.T, in string, got Network, err error, want int, wantErr string, kind error) {
	t.Helper()
	if wantErr == "" {
		if err != nil || got != Network(want) {
			t.Errorf("%s: %d, %v, want %d", in, got, err, want)
		}
		return
	}
	if err == nil || err.Error() != wantErr {
		t.Errorf("%s: error %v\nwant %s", in, err, wantErr)
		return
	}
	if !errors.Is(err, kind) {
		t.Errorf("%s: error %v does not wrap %v", in, err, kind)
	}
	if got != 0 {
		t.Errorf("%s: %d beside an error", in, got)
	}
}

func TestUnits(t *testing.T) {
	if got := Network(1500).Link(); got != 1514 {
		t.Errorf("frame of a 1500 byte packet: %d, want 1514", got)
	}
	if got := Link(1514).Network(); got != 1500 {
		t.Errorf("packet of a 1514 byte frame: %d, want 1500", got)
	}
	for l := range Link(EthernetHeaderLen + 1) {
		if got := l.Network(); got != 0 {
			t.Errorf("packet of a %d byte frame: %d, want 0", l, got)
		}
	}
	for _, n := range []Network{0, MinIPv4, MinIPv6, Default, MaxFormat} {
		if got := n.Link().Network(); got != n {
			t.Errorf("there and back: %d, want %d", got, n)
		}
	}
	if got := MaxFormat.Link(); got != MaxFrame {
		t.Errorf("frame of the largest packet: %d, want %d", got, MaxFrame)
	}
	if got := Link(1514).String() + " " + Network(1500).String(); got != "1514 1500" {
		t.Errorf("in text: %s", got)
	}
}

func TestFlag(t *testing.T) {
	newSet := func() (*flag.FlagSet, *Network) {
		fs := flag.NewFlagSet("test", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		n := Default
		fs.Var(&n, "mtu", "bytes of an IP packet")
		return fs, &n
	}
	fs, n := newSet()
	if err := fs.Parse([]string{"-mtu", "9000"}); err != nil || *n != 9000 {
		t.Errorf("-mtu 9000: %d, %v", *n, err)
	}
	fs, n = newSet()
	err := fs.Parse([]string{"-mtu", "64"})
	if err == nil || !strings.Contains(err.Error(), "below 1280") || *n != Default {
		t.Errorf("-mtu 64: %d, %v", *n, err)
	}
}

// FuzzParse: whatever is accepted is in the range and prints back as a number
// that is accepted too.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1500", "65535", "65536", "-1", "+1500", "9k", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := Parse(s)
		if err != nil {
			if n != 0 || !errors.Is(err, ErrRange) && !errors.Is(err, ErrSyntax) {
				t.Fatalf("%q: %d, %v", s, n, err)
			}
			return
		}
		if n < MinIPv6 || n > Default {
			t.Fatalf("%q: %d is outside the range", s, n)
		}
		if again, err := Parse(n.String()); err != nil || again != n {
			t.Fatalf("%q: %d prints as %s: %d, %v", s, n, n, again, err)
		}
	})
}

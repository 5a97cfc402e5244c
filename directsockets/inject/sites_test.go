//go:build amd64

package inject

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exnet/internal/elffile"
	"exnet/internal/longtest"
)

// disassembled is what objdump says of a program: where instructions begin and what they are, and
// where its jumps lead.
type disassembled struct {
	text    map[uint64]string
	targets map[uint64]bool
}

var (
	lineForm = regexp.MustCompile(`^\s*([0-9a-f]+):\t(.*)$`)
	// What no compiler writes, but objdump reads in data: prefixes of nothing, debug registers,
	// addresses and jumps of few bits.
	dataForm = regexp.MustCompile(`\(bad\)|\brex\b|\(%eip\)|%db\d|addr32 mov|(^| )(j\w+|call)w\b`)
	jumpForm = regexp.MustCompile(`^(?:(?:bnd|[cdefgs]s|data16|addr32|lock|repn?z) +)*(?:j\w+(?:,p[nt])?|call\w*|loop\w*)\s+([0-9a-f]+)`)
)

func disassemble(t *testing.T, path string) disassembled {
	cmd := exec.Command("objdump", "-d", "--no-show-raw-insn", path)
	out, err := cmd.Output()
	if err != nil {
		t.Skip(err)
	}
	d := disassembled{make(map[uint64]string), make(map[uint64]bool)}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		m := lineForm.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		at, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		d.text[at] = strings.TrimSpace(m[2])
		if j := jumpForm.FindStringSubmatch(d.text[at]); j != nil {
			to, err := strconv.ParseUint(j[1], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			d.targets[to] = true
		}
	}
	return d
}

// Every place begins and ends where an instruction does, has one system call, and no jump leads
// into it, as objdump reads the program. No system call is passed over but those that are meant to.
func TestSites(t *testing.T) {
	for variant := range cVariants {
		t.Run(variant, func(t *testing.T) {
			path := cProgram(t, variant)
			d := disassemble(t, path)
			p, err := findProgram(path, false, "")
			if err != nil {
				t.Fatal(err)
			}
			covered := make(map[uint64]bool)
			for _, s := range p.sites {
				for i := range s.next {
					if at := s.at + i; covered[at] {
						t.Errorf("two places have %#x", at)
					} else if covered[at] = true; i > 0 && i < max(s.next, jumpSize) && s.short == nil && d.targets[at] {
						t.Errorf("a jump leads to %#x, in the place at %#x", at, s.at)
					}
				}
				if _, known := d.text[s.at]; !known || d.text[s.at+s.next] == "" && !s.ends {
					t.Errorf("the place at %#x, of %d bytes, is not one of instructions", s.at, s.next)
				}
				if s.short != nil && s.via+jumpSize <= s.at+s.next && s.via >= s.at {
					t.Errorf("%#x is in the place at %#x", s.via, s.at)
				}
			}
			passed := 0
			for at, text := range d.text {
				if text == "syscall" && !covered[at] {
					passed++
				}
			}
			t.Logf("%d places, %d passed over", len(p.sites), passed)
			if passed > len(p.sites) {
				t.Errorf("%d places, %d passed over", len(p.sites), passed)
			}
		})
	}
}

// decodeInstruction finds the instructions where objdump does, in whole programs. OpenSSL's library
// has those of all of x86-64's extensions, XOP's among them.
func TestDecode(t *testing.T) {
	paths := make(map[string]string)
	for variant := range cVariants {
		paths[variant] = cProgram(t, variant)
	}
	if found, err := filepath.Glob("/usr/lib/x86_64-linux-gnu/libcrypto.so.*"); err == nil && len(found) > 0 && longtest.All() {
		paths["libcrypto"] = found[0]
	}
	for variant, path := range paths {
		d := disassemble(t, path)
		f, err := elffile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		wrong, all := 0, 0
		addresses := slices.Sorted(maps.Keys(d.text))
		for i, at := range addresses {
			text := d.text[at]
			if wrong > 10 || i+1 == len(addresses) {
				break
			}
			if strings.HasPrefix(text, ".byte") || strings.HasPrefix(text, "...") || dataForm.MatchString(text) {
				continue
			}
			b, err := f.At(at, maxInstruction)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(b, []byte{0x0f, 0x0f}) || b[0] == 0x9b { // 3DNow!, which is unknown; fwait
				continue
			}
			in := decodeInstruction(b)
			if all++; in.kind != unknown && quickLength(b) != 0 && quickLength(b) != in.len || quickLength(b) != 0 && in.kind != still && in.kind != relative {
				wrong++
				t.Errorf("%s: %#x: %s: %d bytes, quick: %d", variant, at, text, in.len, quickLength(b))
			}
			length := int(addresses[i+1] - at)
			gap := length > len(b) || length > in.len && len(bytes.Trim(b[in.len:length], "\x00")) == 0
			if in.kind == unknown || in.len != length && !gap || in.kind == branches && !jumpForm.MatchString(text) {
				if wrong++; wrong < 10 {
					t.Errorf("%s: %#x: %s: %+v, %d bytes", variant, at, text, in, length)
				}
			}
			if j := jumpForm.FindStringSubmatch(text); j != nil {
				if to := fmt.Sprintf("%x", at+uint64(in.to)); to != j[1] {
					t.Errorf("%s: %#x: %s: leads to %s", variant, at, text, to)
				}
			}
			if (text == "syscall") != (in.kind == system) {
				t.Errorf("%s: %#x: %s: %+v", variant, at, text, in)
			}
			if strings.Contains(text, "(%rip)") != (in.kind == relative || in.kind == returns && in.far > 0) && in.kind != unknown {
				t.Errorf("%s: %#x: %s: %+v", variant, at, text, in)
			}
		}
		if wrong > 0 || all < 1000 {
			t.Errorf("%s: %d of %d wrong", variant, wrong, all)
		}
	}
}

// Instructions of vectors and AMD's XOP, whose opcodes are those of others behind another prefix.
func TestDecodeVector(t *testing.T) {
	for name, b := range map[string][]byte{
		"vpermilpd $1, %xmm0, %xmm1": {0xc4, 0xe3, 0x79, 0x05, 0xc8, 0x01},
		"vpmaskmovd (%rax), ...":     {0xc4, 0xe2, 0x79, 0x8c, 0x00},
		"vpexpandd %zmm0, %zmm1":     {0x62, 0xf2, 0x7d, 0x48, 0x89, 0xc8},
		"vprotd $7, %xmm0, %xmm0":    {0x8f, 0xe8, 0x78, 0xc2, 0xc0, 0x07},
		"vprotd %xmm0, %xmm0, %xmm0": {0x8f, 0xe9, 0x78, 0x92, 0xc0},
		"bextr $0x201, %eax, %eax":   {0x8f, 0xea, 0x78, 0x10, 0xc0, 0x01, 0x02, 0x00, 0x00},
		"popq (%rax)":                {0x8f, 0x00},
		"vpermilpd $1, 0(%rip), ...": {0xc4, 0xe3, 0x79, 0x05, 0x0d, 0x00, 0x00, 0x00, 0x00, 0x01},
		"vprotd $7, 0(%rip), %xmm0":  {0x8f, 0xe8, 0x78, 0xc2, 0x05, 0x00, 0x00, 0x00, 0x00, 0x07},
	} {
		long := append(slices.Clone(b), make([]byte, maxInstruction)...)
		want := still
		if strings.Contains(name, "rip") {
			want = relative
		}
		if in := decodeInstruction(long); in.len != len(b) || in.kind != want {
			t.Errorf("%s: %+v, of %d bytes", name, in, len(b))
		}
		if n := quickLength(long); n != 0 && n != len(b) {
			t.Errorf("%s: quick: %d of %d bytes", name, n, len(b))
		}
	}
}

// An instruction that is moved does what it did.
func TestPutAt(t *testing.T) {
	const from, to = 0x401000, 0x70001000
	for _, c := range []struct {
		name       string
		b          []byte
		leads      uint64 // 0: the same bytes
		distanceAt int
	}{
		{"cmp", []byte{0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff}, 0, 0},
		{"ret", []byte{0xc3}, 0, 0},
		{"lea", []byte{0x48, 0x8d, 0x05, 0x10, 0, 0, 0}, from + 7 + 0x10, 3},
		{"movl", []byte{0xc7, 0x05, 0x10, 0, 0, 0, 1, 0, 0, 0}, from + 10 + 0x10, 2},
		{"jne short", []byte{0x75, 0x10}, from + 2 + 0x10, 2},
		{"jne", []byte{0x0f, 0x85, 0x10, 0, 0, 0}, from + 6 + 0x10, 2},
		{"jmp short", []byte{0xeb, 0xf0}, from + 2 - 0x10, 1},
		{"call", []byte{0xe8, 0x10, 0, 0, 0}, from + 5 + 0x10, 1},
	} {
		in := decodeInstruction(append(bytes.Clone(c.b), make([]byte, maxInstruction)...))
		if in.len != len(c.b) {
			t.Errorf("%s: %d bytes", c.name, in.len)
			continue
		}
		got := in.putAt(c.b, from, to)
		if c.leads == 0 {
			if !bytes.Equal(got, c.b) {
				t.Errorf("%s: % x", c.name, got)
			}
			continue
		}
		if len(got) < c.distanceAt+4 {
			t.Errorf("%s: % x", c.name, got)
			continue
		}
		d := int64(int32(binary.LittleEndian.Uint32(got[c.distanceAt:])))
		if leads := uint64(to + int64(len(got)) + d); leads != c.leads {
			t.Errorf("%s: % x leads to %#x, want %#x", c.name, got, leads, c.leads)
		}
	}
	if loop := decodeInstruction([]byte{0xe2, 0x10, 0, 0}); loop.putAt([]byte{0xe2, 0x10}, from, to) != nil {
		t.Error("a loop was moved")
	}
	if far := decodeInstruction([]byte{0xe8, 0, 0, 0, 0}); far.putAt([]byte{0xe8, 0, 0, 0, 0}, 0, 1<<33) != nil {
		t.Error("a call was moved too far")
	}
}

// Which forms of a text with one system call can be replaced.
func TestForms(t *testing.T) {
	const call = "\x0f\x05"
	for _, c := range []struct {
		name, text string
		ok         bool
		at, next   uint64
		short      bool
	}{
		{"a comparison", "\x90\x90" + call + "\x48\x3d\x00\xf0\xff\xff\xc3", true, 2, 8, false},
		{"ret, and space", "\xb8\x00\x00\x00\x00" + call + "\xc3\x90\x90\x90", true, 5, 5, false},
		{"the number before, a target behind", "\xb8\x03\x00\x00\x00" + call + "\x31\xc0\x31\xc9\xeb\xfa\xc3", true, 0, 7, false},
		{"targets on both sides", "\x90" + call + "\x31\xc0\xeb\xfa\xeb\xf9", false, 0, 0, false},
		{"targets on both sides, and space", "\x90" + call + "\x31\xc0\xeb\xfa\xeb\xf9\xcc\xcc\xcc\xcc\xcc", true, 1, 2, true},
		{"space that somebody comes to", "\x90" + call + "\x31\xc0\xeb\xfa\xeb\xf9\xcc\xcc\xcc\xcc\xcc\xeb\xfa", false, 0, 0, false},
		{"a target before", "\x31\xc0\x31\xff" + call + "\x31\xc0\xeb\xfc\xeb\xf6\xc3", false, 0, 0, false},
		{"a second call", "\x90" + call + call + "\x90\xc3", false, 0, 0, false},
	} {
		text := []byte(c.text)
		found, targets, _, spaces := sweepText(text)
		if len(found) == 0 {
			t.Errorf("%s: not found", c.name)
			continue
		}
		p := &program{}
		err := p.placeJumps(text, found[:1], targets, spaces, false)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		} else if c.ok && (p.sites[0].at != c.at || p.sites[0].next != c.next || (p.sites[0].short != nil) != c.short) {
			t.Errorf("%s: %+v", c.name, p.sites[0])
		}
	}
}

// A short jump and the one of the space that it leads to stay whole where they overlap.
func TestOverlap(t *testing.T) {
	const at, via = 0x401000, 0x401003
	p := &program{sites: []site{{at: at, next: 2, short: []byte{0xeb, 1, 0x90, 0xcc, 0xcc}, via: via}}}
	l := &library{symbols: map[string]uint64{symEntry: 0x100}}
	s, err := p.makeStubs(nil, 0x500000, 0, l, 0x600000)
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 16)
	for b := s.b[s.table-s.at:]; binary.LittleEndian.Uint64(b) != 0; b = b[16:] {
		copy(text[binary.LittleEndian.Uint64(b)-at:], b[8:8+jumpSize])
	}
	if !bytes.Equal(text[:4], []byte{0xeb, 1, 0x90, 0xe9}) || s.low != at || s.pages != pageSize {
		t.Errorf("% x, %#x of %#x bytes", text, s.low, s.pages)
	}
}

// The number of a system call is known where it was written on the way, and nowhere else.
func TestNumber(t *testing.T) {
	const call = "\x0f\x05"
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"mov", "\xb8\xca\x00\x00\x00" + call, 202},
		{"xor", "\x31\xc0\x31\xff" + call, 0},
		{"a byte", "\x31\xc0\xb0\x38\x49\x89\xfb\x48\x89\x0e" + call, 56},
		{"from a register", "\xba\x3c\x00\x00\x00\x89\xd0" + call, -1},
		{"changed", "\xb8\xca\x00\x00\x00\xff\xc0" + call, -1},
		{"over a jump's target", "\xb8\xca\x00\x00\x00\x31\xff" + call + "\xeb\xfa", -1},
		{"after a call", "\xb8\xca\x00\x00\x00\xe8\x00\x00\x00\x00" + call, -1},
		{"another register", "\xb8\x0e\x00\x00\x00\x41\xb8\x08\x00\x00\x00" + call, 14},
	} {
		text := []byte(c.text)
		found, targets, _, _ := sweepText(text)
		if got := found[0].callNumber(text, targets); len(found) != 1 || got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// The library knows where the jump behind Syscall6 is: a signal that comes just there is one in
// Syscall6 to Go's handler, which has no table of what lies behind it.
func TestJumpBehind(t *testing.T) {
	text, err := os.ReadFile("../preload/hooks/go.h")
	s := goSite(0, bytes.Repeat([]byte{0xcc}, jumpSize))
	if want := fmt.Sprintf("GO_JUMP = %d ", s.via-goBehind); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("no %q: %v", want, err)
	}
}

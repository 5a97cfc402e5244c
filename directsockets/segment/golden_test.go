package segment

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

// The scripts of testdata, which the C implementation runs as well; their form is
// in testdata/README.md.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.ds")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sc := bufio.NewScanner(f)
		var v *script
		for n := 1; sc.Scan(); n++ {
			line, _, _ := strings.Cut(sc.Text(), "#")
			op, want, _ := strings.Cut(strings.TrimSpace(line), "->")
			words := strings.Fields(op)
			if len(words) == 0 {
				continue
			}
			if words[0] == "case" {
				if v != nil {
					v.end()
				}
				v = &script{}
				continue
			}
			got, err := v.do(words[0], words[1:], strings.TrimSpace(want))
			if err != nil {
				t.Errorf("%s:%d: %s: %v", name, n, strings.TrimSpace(op), err)
			} else if got != "" {
				t.Errorf("%s:%d: %s -> %s", name, n, strings.TrimSpace(line), got)
			}
		}
		if v != nil {
			v.end()
		}
		if err := sc.Err(); err != nil {
			t.Error(err)
		}
	}
}

// script is the state of a case.
type script struct {
	seg  *Segment
	end_ *End
	bell int
	off  atomic.Uint64 // the broker's word
}

func (v *script) end() {
	if v.end_ != nil {
		v.end_.Close(false)
		v.seg.Retire()
	}
	if v.bell > 0 {
		unix.Close(v.bell)
	}
}

var names = map[error]string{
	nil: "ok", ErrAgain: "again", io.EOF: "eof", ErrDemoted: "demoted", ErrFellBack: "fallen-back", ErrEnded: "ended",
	ErrClosed: "closed", ErrReset: "reset", ErrEnding: "ending", ErrNotPromoted: "shadow", ErrCorrupt: "corrupt",
}

func name(err error) string {
	if s, ok := names[err]; ok {
		return s
	}
	return err.Error()
}

func yes(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }

func armed(ready bool) string { return map[bool]string{true: "ready", false: "armed"}[ready] }

// do does an operation, and returns what it answered if that is not what was
// wanted.
func (v *script) do(op string, args []string, want string) (string, error) {
	e := v.end_
	var got string
	switch op {
	case "new":
		return "", v.new(args)
	case "poke", "peek":
		off, err := strconv.ParseUint(args[0], 0, 31)
		if err != nil {
			return "", err
		}
		b, err := parseBytes(args[1:])
		if err != nil {
			return "", err
		}
		mem := v.seg.Exposed()[off:][:len(b)]
		if op == "poke" {
			copy(mem, b)
		} else if !bytes.Equal(mem, b) {
			return hex.EncodeToString(mem), nil
		}
		return "", nil
	case "stamps":
		if shm.Ticks() == 0 { // no counter here
			return "", nil
		}
		got = "yes"
		for last := uint64(1); len(args) > 0; args = args[1:] {
			off, err := strconv.Atoi(args[0])
			if err != nil {
				return "", err
			}
			stamp := binary.LittleEndian.Uint64(v.seg.Exposed()[off:])
			if stamp < last {
				got = "no"
			}
			last = stamp
		}
	case "map":
		var err error
		if got, err = mapping(args); err != nil {
			return "", err
		}
	case "attach":
		got = name(e.Attach())
	case "attached":
		got = yes(e.Attached())
	case "promote":
		n, err := strconv.ParseUint(args[0], 0, 64)
		if err != nil {
			return "", err
		}
		got = name(e.Promote(n))
	case "promoted":
		got = "none"
		if n, ok := e.PromotedAt(); ok {
			got = fmt.Sprint(n)
		}
	case "send":
		b, err := parseBytes(args)
		if err != nil {
			return "", err
		}
		n, err := e.Send(b)
		if got = fmt.Sprint(n); err != nil {
			got = name(err)
		}
	case "recv":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return "", err
		}
		b := make([]byte, n)
		n, err = e.Recv(b)
		if err == nil {
			return same(b[:n], want)
		}
		got = name(err)
	case "shutdown":
		got = name(e.Shutdown())
	case "demote":
		got = name(e.Demote())
	case "fallback":
		got = name(e.FallBack())
	case "resume":
		got = yes(e.Resume(args[0] == "yes"))
	case "return":
		var b []byte
		err := e.ReturnToTCP(func(p []byte) (int, error) {
			b = append(b, p...)
			return len(p), nil
		})
		if err == nil {
			return same(b, want)
		}
		got = name(err)
	case "readable":
		got = fmt.Sprint(e.Readable())
	case "armrx":
		got = armed(e.ArmRX())
	case "armtx":
		got = armed(e.ArmTX())
	case "awake":
		e.Awake()
	case "bells":
		b := make([]byte, 100)
		n, err := unix.Read(v.bell, b)
		if got = fmt.Sprint(n); err == unix.EAGAIN {
			got = "0"
		} else if want == "some" {
			return "", nil
		}
	case "switched":
		if v.off.Store(0); args[0] == "off" {
			v.off.Store(1 << (8 * SwitchByte))
		}
		e.heedChange()
	case "hangup":
		e.tx.looked = shm.Ticks() + 1<<40 // nor does it look for itself: when, is for it to choose
		unix.Close(v.bell)
		v.bell = -1
	case "close", "reset":
		e.Close(op == "reset")
	default:
		return "", errors.New("what is this?")
	}
	if got == want {
		got = ""
	}
	return got, nil
}

func same(b []byte, want string) (string, error) {
	w, err := parseBytes(strings.Fields(want))
	if err != nil || bytes.Equal(b, w) {
		return "", err
	}
	return hex.EncodeToString(b), nil
}

func (v *script) new(args []string) error {
	slots, err1 := strconv.Atoi(args[0])
	ring, err2 := strconv.Atoi(args[1])
	side, ok := map[string]Side{"c": Client, "s": Server}[args[2]]
	if err1 != nil || err2 != nil || !ok {
		return errors.New("slots, ring, side?")
	}
	info := Info{Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("10.0.0.2:80")}
	for i := range info.Nonce {
		info.Nonce[i] = byte(i)
	}
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	v.bell = bells[1]
	if v.seg, err = Create(info, Config{Slots: slots, Ring: ring}); err != nil {
		return err
	}
	if v.end_, err = NewEnd(v.seg, side, bells[0], nil); err == nil {
		v.end_.HeedSwitch(&v.off)
	}
	return err
}

// mapping maps a memfd with a beginning of ours.
func mapping(args []string) (string, error) {
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	b, err := parseBytes(args[1:])
	if err != nil {
		return "", err
	}
	fd, err := memfd(size, b, sealed)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	s, err := Map(fd)
	if errors.Is(err, ErrSegment) {
		return "refused", nil
	}
	if err == nil {
		s.Retire()
	}
	return name(err), nil
}

const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

func memfd(size int, b []byte, seals int) (int, error) {
	fd, err := unix.MemfdCreate("segment-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil && len(b) > 0 {
		_, err = unix.Pwrite(fd, b, 0)
	}
	if err == nil && seals != 0 {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// parseBytes parses BYTES of testdata/README.md.
func parseBytes(words []string) (b []byte, err error) {
	for _, w := range strings.Split(strings.Join(words, ""), "+") {
		var n, seed uint64
		switch {
		case w == "-" || w == "":
		case strings.HasPrefix(w, "u32:"):
			n, err = strconv.ParseUint(w[4:], 0, 32)
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		case strings.HasPrefix(w, "u64:"):
			n, err = strconv.ParseUint(w[4:], 0, 64)
			b = binary.LittleEndian.AppendUint64(b, n)
		case w[0] == '@':
			var skip uint64
			if k, _ := fmt.Sscanf(w, "@%d:%d:%d", &n, &seed, &skip); k < 2 {
				return nil, fmt.Errorf("pattern %q", w)
			}
			b = append(b, pattern(int(n+skip), seed)[skip:]...)
		default:
			var h []byte
			h, err = hex.DecodeString(strings.ReplaceAll(w, "_", ""))
			b = append(b, h...)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + uint64(i) + uint64(i/251))
	}
	return b
}

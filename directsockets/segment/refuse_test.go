package segment

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"exnet/internal/shm"

	"golang.org/x/sys/unix"
)

var testInfo = Info{Nonce: [16]byte{1, 2, 3}, Client: netip.MustParseAddrPort("10.0.0.1:40000"), Server: netip.MustParseAddrPort("[2001:db8::2]:443")}

// goodHeader is a header that Map takes, of a segment of size bytes.
func goodHeader() (b []byte, size int) {
	size, _ = sizeOf(minSlots, minRing)
	h := header{slots: minSlots, ring: minRing, size: size, info: testInfo}
	var head [headLen]byte
	h.encode(&head)
	return head[:], size
}

func TestHeaderRoundTrip(t *testing.T) {
	b, size := goodHeader()
	var h header
	if err := h.decode((*[headLen]byte)(b), size); err != nil {
		t.Fatal(err)
	}
	if want := (header{slots: minSlots, ring: minRing, size: size, info: testInfo}); h != want {
		t.Errorf("got %+v, want %+v", h, want)
	}
	if d := testInfo.Device(); d != 443&15 {
		t.Error("device", d)
	}
}

// A header that is cut, at each byte.
func TestMapRefusesCutHeader(t *testing.T) {
	b, size := goodHeader()
	for cut := range b {
		fd, err := memfd(size, b[:cut], sealed)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Map(fd)
		unix.Close(fd)
		if err == nil {
			// What is not there is zero: only nonce, addresses and ports may be.
			if cut <= headSizeOff+2 || s.Info() == testInfo {
				t.Errorf("cut at %d: mapped", cut)
			}
			s.Retire()
		} else if !errors.Is(err, ErrSegment) || !errors.Is(err, shm.ErrSegment) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

// What is no memfd that can be trusted.
func TestMapRefusesDescriptors(t *testing.T) {
	b, size := goodHeader()
	open := func(f func() (int, error)) func(t *testing.T) int {
		return func(t *testing.T) int {
			fd, err := f()
			if err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			return fd
		}
	}
	made := func(size, seals int) func(*testing.T) int {
		return open(func() (int, error) { return memfd(size, b, seals) })
	}
	for name, fd := range map[string]func(*testing.T) int{
		"no seals":       made(size, 0),
		"no SHRINK":      made(size, unix.F_SEAL_GROW|unix.F_SEAL_SEAL),
		"no GROW":        made(size, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL),
		"no SEAL":        made(size, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW),
		"WRITE":          made(size, sealed|unix.F_SEAL_WRITE),
		"FUTURE_WRITE":   made(size, sealed|unix.F_SEAL_FUTURE_WRITE),
		"empty":          made(0, sealed),
		"a page":         made(4096, sealed),
		"a page short":   made(size-4096, sealed),
		"a byte short":   made(size-1, sealed),
		"a byte longer":  made(size+1, sealed),
		"a page longer":  made(size+4096, sealed),
		"much too large": made(4<<30, sealed),
		"huge pages": open(func() (int, error) {
			fd, err := unix.MemfdCreate("huge", unix.MFD_HUGETLB|unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
			if err != nil {
				return -1, err
			}
			if err := unix.Ftruncate(fd, 2<<20); err != nil {
				unix.Close(fd)
				return -1, err
			}
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed)
			return fd, err
		}),
		"socket": open(func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) }),
		"device": open(func() (int, error) { return unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0) }),
		"file": open(func() (int, error) {
			f, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				return -1, err
			}
			defer f.Close()
			return unix.Dup(int(f.Fd()))
		}),
		"path": open(func() (int, error) { return unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0) }),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Map(fd(t))
			if !errors.Is(err, ErrSegment) {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
	if _, err := Map(-1); err == nil {
		t.Error("mapped nothing")
	}
}

// A segment that was mapped cannot be cut, and its header is not read again.
func TestMappedStays(t *testing.T) {
	near, err := Create(testInfo, Config{Slots: 16, Ring: minRing})
	if err != nil {
		t.Fatal(err)
	}
	defer near.Retire()
	far, err := Map(near.Fd())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Retire()
	if err := unix.Ftruncate(near.Fd(), 4096); err == nil {
		t.Error("cut")
	}
	if err := unix.Ftruncate(near.Fd(), 1<<30); err == nil {
		t.Error("grown")
	}
	if _, err := unix.FcntlInt(uintptr(near.Fd()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("a seal was added")
	}
	clear(near.Exposed()[:512])
	if far.Info() != testInfo || far.Size() != far.Len() || far.Config() != (Config{Slots: 16, Ring: minRing}) {
		t.Error("the header was read again", far.Info(), far.Config())
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, c := range []Config{{Slots: 8}, {Slots: 100}, {Slots: 8192}, {Slots: -16}, {Ring: 4096}, {Ring: 65537}, {Ring: 2 << 30}, {Ring: -65536}} {
		if _, err := Create(testInfo, c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Create(Info{}, Config{}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	if _, err := NewRegion(0); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	if _, err := NewRegion(maxRegion + 1); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

// The client's mapping takes nothing but what was there at the hand-over; after
// Retire an End goes on without a fault.
func TestRetired(t *testing.T) {
	c, s := promoted(t, Config{})
	if _, err := c.Send([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	c.Segment().Retire()
	s.Segment().Retire()
	for range 200 {
		_, _ = c.Send(make([]byte, 1000))
		_, _ = s.Recv(make([]byte, 1000))
	}
	c.ArmTX()
	s.ArmRX()
}

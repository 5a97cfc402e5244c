package preload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
	"exnet/internal/cbuild"
)

// compileTest builds a program of ctest from it and the library's own sources.
func compileTest(t *testing.T, name string) string {
	t.Helper()
	needCompiler(t)
	out := filepath.Join(t.TempDir(), name)
	sources, err := filepath.Glob("segment/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources (%v)", err)
	}
	compileC(t, out, cbuild.Command{
		Flags: []string{"-std=gnu11", "-O1", "-g", "-fexceptions", "-fno-strict-aliasing", "-I."},
		Files: append(sources, "ctest/"+name+".c", "ctest/harness.c"), Libs: source.Libs,
	})
	return out
}

// An end in Go and one in C, either way round: all bytes go there and back, in pieces of all sizes.
func TestInterop(t *testing.T) {
	echo := compileTest(t, "echo")
	for side, name := range map[segment.Side]string{segment.Client: "Go client, C server", segment.Server: "C client, Go server"} {
		for _, config := range []segment.Config{{}, {Slots: 16, Ring: 64 << 10}} {
			t.Run(fmt.Sprint(name, " ", config.Slots), func(t *testing.T) { interop(t, echo, side, config) })
		}
	}
}

func interop(t *testing.T, echo string, side segment.Side, config segment.Config) {
	seg, err := segment.Create(segment.Info{Nonce: segment.NewNonce(), Client: netip.MustParseAddrPort("10.0.0.1:40000"),
		Server: netip.MustParseAddrPort("10.0.0.2:80")}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Retire()
	bells, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	far := os.NewFile(uintptr(bells[1]), "bell")
	memory, err := unix.FcntlInt(uintptr(seg.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(memory), "segment")
	cmd := exec.Command(echo, fmt.Sprint(1-side), "3", "4")
	cmd.ExtraFiles = []*os.File{file, far}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file.Close()
	far.Close()
	defer func() {
		_ = cmd.Process.Kill() // it has ended long ago if all went well
		_ = cmd.Wait()
	}()
	end, err := segment.NewEnd(seg, side, bells[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close(false)
	deadline := time.Now().Add(3 * time.Minute)
	wait := func(what string) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, end.Err())
		}
		time.Sleep(10 * time.Microsecond)
	}
	if side == segment.Server {
		if err := end.Attach(); err != nil {
			t.Fatal(err)
		}
	}
	for !end.Attached() {
		wait("C does not attach")
	}
	for {
		if err := end.Promote(0); err == nil {
			break
		} else if !errors.Is(err, segment.ErrAgain) {
			t.Fatal(err)
		}
		wait("promote")
	}
	for {
		if n, ok := end.PromotedAt(); ok {
			if n != 0 {
				t.Fatalf("promoted at %d", n)
			}
			break
		}
		wait("C does not promote")
	}
	data := make([]byte, 8<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data) // it never fails
	sizes := rand.New(r)
	var back bytes.Buffer
	buf := make([]byte, 100000)
	recv := func() bool {
		n, err := end.Recv(buf[:1+sizes.IntN(len(buf))])
		back.Write(buf[:n])
		if err != nil && !errors.Is(err, segment.ErrAgain) {
			t.Fatalf("receive after %d bytes: %v", back.Len(), err)
		}
		return n > 0
	}
	for left := data; len(left) > 0; {
		size := 1 + sizes.IntN(600)
		if sizes.IntN(4) == 0 {
			size = 1 + sizes.IntN(200000)
		}
		n, err := end.Send(left[:min(size, len(left))])
		left = left[n:]
		if err != nil && !errors.Is(err, segment.ErrAgain) {
			t.Fatal(err)
		}
		if !recv() && n == 0 {
			wait("send")
		}
	}
	for err = end.Shutdown(); err != nil; err = end.Shutdown() {
		if !errors.Is(err, segment.ErrAgain) {
			t.Fatal(err)
		}
		recv()
		wait("shutdown")
	}
	for back.Len() < len(data) {
		if !recv() {
			wait("receive")
		}
	}
	for {
		_, err := end.Recv(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if !errors.Is(err, segment.ErrAgain) {
			t.Fatalf("end: %v", err)
		}
		wait("end")
	}
	if !bytes.Equal(back.Bytes(), data) {
		t.Error("other bytes came back")
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("C: %v", err)
	}
}

package preload

import (
	"bytes"
	"debug/elf"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"exnet/internal/cbuild"
	"exnet/internal/longtest"
)

// beside are probes that make, use and end connections in the common ways.
var beside = strings.Fields("echo duplex poll-sleeps poll-mixed select-mixed epoll-level epoll-edge fork-both-use exec-in-place close-both")

// compareBeside runs probes with the library in an environment that other has changed, and without
// the library in the same.
func compareBeside(t *testing.T, probes, preloaded string, other ...string) {
	t.Helper()
	known := probeNames(t, testProbes(t))
	env := append(startBroker(t), "LD_PRELOAD="+preloaded)
	n := 0
	for _, name := range beside {
		if !slices.Contains(known, name) {
			continue
		}
		n++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareProbe(t, other, env, probes, name)
		})
	}
	if n != len(beside) {
		t.Errorf("only %d probes", n)
	}
}

// sharedObject builds a library of testdata.
func sharedObject(t *testing.T, name string, flags ...string) string {
	t.Helper()
	needCompiler(t)
	path := filepath.Join(t.TempDir(), name+".so")
	compileC(t, path, cbuild.Command{Flags: append(append(slices.Clone(warned), "-shared", "-fPIC"), flags...), Files: []string{"testdata/" + name + ".c"}, Libs: []string{"-ldl"}})
	return path
}

// Another preload library holds a lock while it calls this one, which calls nothing of it,
// whichever of the two comes first.
func TestLocksOfOthers(t *testing.T) {
	t.Parallel()
	locks := sharedObject(t, "locks", "-fno-builtin", "-Wno-builtin-declaration-mismatch")
	for order, libraries := range map[string]string{"first": locks + " " + testLibrary(t), "last": testLibrary(t) + " " + locks} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			compareBeside(t, testProbes(t), libraries)
		})
	}
}

// A program starts and runs though an auditor takes most of the static thread-local storage, and
// the library leaves the most of what there is then (1,664 bytes of glibc 2.36) to others.
func TestAuditor(t *testing.T) {
	t.Parallel()
	library := testLibrary(t)
	f, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_TLS && p.Memsz > 800 {
			t.Errorf("%d bytes of static thread-local storage, want at most 800", p.Memsz)
		}
	}
	compareBeside(t, testProbes(t), library, "LD_AUDIT="+sharedObject(t, "audit"))
}

// A program that is built with a sanitizer runs with the library, by what exn-run puts into its
// environment.
func TestSanitizedPrograms(t *testing.T) {
	t.Parallel()
	library := testLibrary(t)
	for kind, options := range map[string]string{"address": "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0", "thread": "TSAN_OPTIONS=report_bugs=0:die_after_fork=0"} {
		t.Run(kind, func(t *testing.T) {
			longtest.Skip(t) // builds all probes once more
			t.Parallel()
			sanitizerLibrary(t, map[string]string{"address": "libasan.so", "thread": "libtsan.so"}[kind])
			probes := compileProbes(t, t.TempDir(), []string{"-fsanitize=" + kind, "-Wno-tsan"})
			compareBeside(t, probes, library, options)
		})
	}
}

// What a program calls past the library's names comes to the same hooks by the C library's own
// system calls: the library has none of those names here. The probes call each of them.
func TestHiddenNames(t *testing.T) {
	needCompiler(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the C library is not patched on", runtime.GOARCH)
	}
	t.Parallel()
	library := filepath.Join(t.TempDir(), Name)
	compileC(t, library, cbuild.Command{
		Flags: append(slices.Clone(source.Flags), "-Wl,--version-script=testdata/hidden.map"),
		Files: librarySources(t), Libs: source.Libs,
	})
	env := append(startBroker(t), "LD_PRELOAD="+library)
	for _, name := range hidden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareProbe(t, nil, env, testProbes(t), name)
		})
	}
}

// hidden are probes of the functions by which a program reaches the kernel; past call them past the
// library's names.
var (
	hidden = strings.Fields("echo banner vectors msgs mmsgs sendto-address nonblock-later backpressure halfclose " +
		"peek waitall dontwait msg-trunc poll-basic poll-mixed poll-sleeps poll-hangup select-mixed epoll-level epoll-edge " +
		"epoll-oneshot epoll-rdhup epoll-exclusive epoll-threads dup stdio dprintf sendfile splice shutdown-both shutdown-wakes " +
		"timeouts cancel cancel-calls cancel-async threads-share duplex signal-send signal-recv close-range raw-syscalls ways-posix-aio")
	past = strings.Fields("past-libc-bytes past-libc-waits past-libc-numbers past-plugin-bytes past-plugin-waits past-plugin-numbers " +
		"past-opened-bytes past-opened-waits past-opened-numbers past-opened-again past-opened-apart past-own-ways past-own-sockets")
)

// plugins builds what the probes open, and returns the variables that name it.
func plugins(t *testing.T) []string {
	t.Helper()
	return []string{"PROBE_PLUGIN=" + sharedObject(t, "plugin"), "PROBE_OPENED=" + sharedObject(t, "opened", "-O2", `-DBYTES="0x100000"`)}
}

// What a program calls by functions of the C library's handle, in a plugin that binds past the
// library, or by instructions of its own, comes to the same hooks: bytes keep their order, waits
// see what is in memory, and a number that is closed so is known to be.
func TestPastTheNames(t *testing.T) {
	needCompiler(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the C library is not patched on", runtime.GOARCH)
	}
	t.Parallel()
	both := plugins(t)
	env := append(startBroker(t), "LD_PRELOAD="+testLibrary(t))
	for _, name := range past {
		for _, form := range []string{"", "cold", "uncounted"} {
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				compareProbe(t, both, env, testProbes(t), name, form)
			})
		}
	}
}

// A program stays on TCP, and loses nothing, once it has opened a library that makes system calls
// and whose instructions cannot be replaced: the library or the dynamic linker changes them, or
// they are in two segments, and one may jump into the other.
func TestOpenedAsItIs(t *testing.T) {
	needCompiler(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the C library is not patched on", runtime.GOARCH)
	}
	t.Parallel()
	env := append(startBroker(t), "LD_PRELOAD="+testLibrary(t))
	for kind, flags := range map[string][]string{
		"relocated": {"-DRELOCATED", "-Wl,-z,notext"}, "apart": {"-DAPART", "-Wl,--section-start=.apart=0x400000"}, "written": nil,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := sharedObject(t, "opened", append(flags, "-O2")...)
			if kind == "written" {
				makeWritable(t, path)
			}
			for _, name := range []string{"past-opened-bytes", "past-opened-waits", "past-opened-numbers"} {
				compareProbe(t, []string{"PROBE_OPENED=" + path, "PROBE_WARM=500"}, env, testProbes(t), name)
			}
		})
	}
}

// makeWritable has a library's code mapped so that it can be written.
func makeWritable(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	const headers, size, flags = 64, 56, 4
	for i, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			b[headers+i*size+flags] |= byte(elf.PF_W)
		}
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// root is where -root has another C library.
var root = flag.String("root", "", "`DIR` a root file system of Debian 13 (test/testdata/containers/debian.sh DIR trixie): the probes run with its C library, glibc 2.41")

// The C library of another root is patched as this one is, though its functions have another form.
func TestOtherLibc(t *testing.T) {
	if *root == "" {
		t.Skip("it wants another C library: run it with -root DIR")
	}
	needCompiler(t)
	t.Parallel()
	libraries := filepath.Join(*root, "usr/lib/x86_64-linux-gnu")
	both := plugins(t)
	env := append(startBroker(t), "LD_PRELOAD="+testLibrary(t))
	for _, name := range slices.Concat(hidden, past) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareProbe(t, both, env, filepath.Join(libraries, "ld-linux-x86-64.so.2"), "--library-path", libraries, testProbes(t), name)
		})
	}
}

// The same calls by a program that is optimized otherwise, lies elsewhere, has no table of its
// functions, or has all addresses below its text that jumps reach but the lowest.
func TestOwnCalls(t *testing.T) {
	needCompiler(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the program is not patched on", runtime.GOARCH)
	}
	longtest.Skip(t) // builds all probes once more
	t.Parallel()
	env := append(startBroker(t), "LD_PRELOAD="+testLibrary(t))
	for name, flags := range map[string][]string{
		"O0": {"-O0"}, "O2": {"-O2", "-no-pie"}, "O3": {"-O3", "-march=haswell", "-fcf-protection=full"},
		"no table": {"-Wl,--no-eh-frame-hdr"},
		"low":      {"-no-pie", "-Wl,-Ttext-segment=0x4000000", "-Wl,--section-start=.low=0x200000", "-DLOW_BYTES=0x3dff000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			probes := compileProbes(t, t.TempDir(), flags)
			for _, name := range []string{"past-own-ways", "past-own-sockets", "ways-all"} {
				compareProbe(t, nil, env, probes, name)
			}
		})
	}
}

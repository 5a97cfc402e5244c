package preload

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/cbuild"
)

// A connection with one request, which stays on TCP, makes the same system calls as without
// the library, at both ends, wherever its listener listens, if the server waits for edges, and if
// the client connects as event loops do, in a process of several threads, too.
func TestRequestCalls(t *testing.T) {
	library := testLibrary(t)
	requests := filepath.Join(t.TempDir(), "requests")
	compileC(t, requests, cbuild.Command{Flags: warned, Files: []string{"testdata/requests.c"}})
	env := append(startBroker(t), "LD_PRELOAD="+library)
	for _, at := range []string{"all", "loopback", "edges", "loop", "poll", "threads"} {
		want, got := systemCalls(t, nil, requests, at), systemCalls(t, env, requests, at)
		// Each second the library looks whether its broker is still there. A run between two of
		// these looks has nothing else to do.
		for try := 0; try < 20 && !slices.Equal(got, want); try++ {
			got = systemCalls(t, env, requests, at)
		}
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: system calls %d, without the library %d", at, got, want)
		}
	}
}

// What the library has to do for a process's first connection comes before the kernel's accept, or
// at the next call on it. A worker that a signal ends in between loses the connection: uWSGI's,
// when its emperor reloads it.
func TestAcceptCalls(t *testing.T) {
	library := testLibrary(t)
	requests := filepath.Join(t.TempDir(), "requests")
	compileC(t, requests, cbuild.Command{Flags: warned, Files: []string{"testdata/requests.c"}})
	env := append(startBroker(t), "LD_PRELOAD="+library)
	for name, more := range map[string][]string{"default": nil, "waits": {"EXNET_DS_SENDS=0", "EXNET_DS_BYTES=0", "EXNET_DS_WAIT=2"}} {
		calls := systemCalls(t, slices.Concat(env, more), requests, "first")
		if at := slices.Index(calls, unix.SYS_ACCEPT); at < 0 || at != len(calls)-1 {
			t.Errorf("%s: system calls %d, want %d (accept) last", name, calls, unix.SYS_ACCEPT)
		}
	}
}

// A program whose connection carries one request does not connect to the broker. One with more
// does, and does not wait for the greeting: here it never comes.
func TestGreetingCalls(t *testing.T) {
	library, dir := testLibrary(t), t.TempDir()
	client := filepath.Join(dir, "client")
	compileC(t, client, cbuild.Command{Flags: warned, Files: []string{"testdata/client.c"}})
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for c, err := server.Accept(); err == nil; c, err = server.Accept() {
			_, _ = io.Copy(c, c) // until the client closes it
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(server.Addr().String()) // it is one
	path := filepath.Join(dir, "broker")
	broker, err := net.Listen("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	env := []string{"LD_PRELOAD=" + library, "EXNET_BROKER=" + path, "EXNET_LOOPBACK=1"}
	for requests, want := range map[string]int{"1": 1, "20": 2} {
		connects, waits := 0, 0
		for _, nr := range systemCalls(t, env, client, port, requests) {
			switch nr {
			case unix.SYS_CONNECT:
				connects++
			case unix.SYS_POLL, unix.SYS_PPOLL:
				waits++
			}
		}
		if connects != want || waits > 0 {
			t.Errorf("%s requests: it connects %d sockets, want %d, and waits %d times, want 0", requests, connects, want, waits)
		}
	}
}

// Connections with a few requests, in a process whose connections are like that, stay on TCP too.
// Their server asks once where they lead, since it looks for an offer.
func TestShortCalls(t *testing.T) {
	library := testLibrary(t)
	requests := filepath.Join(t.TempDir(), "requests")
	compileC(t, requests, cbuild.Command{Flags: warned, Files: []string{"testdata/requests.c"}})
	env := append(startBroker(t), "LD_PRELOAD="+library)
	asks := []uint64{unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT}
	const counted = 4 // COUNTED of requests.c
	count := func(env []string) (others []uint64, asked int) {
		calls := systemCalls(t, env, requests, "short")
		return slices.DeleteFunc(slices.Clone(calls), func(nr uint64) bool { return slices.Contains(asks, nr) }),
			len(calls)
	}
	want, _ := count(nil)
	got, all := count(env)
	for try := 0; try < 20 && !slices.Equal(got, want); try++ { // as above
		got, all = count(env)
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("system calls %d, without the library %d", got, want)
	}
	if most := len(want) + counted*len(asks); all > most {
		t.Errorf("%d system calls, want at most %d", all, most)
	}
}

// In a set of many sockets, of which nearly all are idle, the kernel is asked about them when the
// program sleeps, and when the sleep is over; no memory is mapped for it each time.
func TestLargeSets(t *testing.T) {
	library := testLibrary(t)
	sets := filepath.Join(t.TempDir(), "sets")
	compileC(t, sets, cbuild.Command{Flags: warned, Files: []string{"testdata/sets.c"}, Libs: []string{"-ldl"}})
	const polls = 8 // POLLS of sets.c
	asked, mapped := 0, 0
	for _, nr := range systemCalls(t, append(startBroker(t), "LD_PRELOAD="+library), sets) {
		switch nr {
		case unix.SYS_POLL, unix.SYS_PPOLL:
			asked++
		case unix.SYS_MMAP, unix.SYS_MUNMAP:
			mapped++
		}
	}
	if asked < polls || asked > 2*polls || mapped > 0 {
		t.Errorf("%d polls with a time ask the kernel %d times, want %d at most; %d calls map memory, want 0", polls, asked, 2*polls, mapped)
	}
}

// For a program that has no socket, starting costs hardly a system call more than with a library
// that does nothing, but for those that look for an inherited listener: one for each descriptor
// that may be one, and none of the names in /proc, of which one takes as long as all of those.
func TestStartCalls(t *testing.T) {
	library, dir := testLibrary(t), t.TempDir()
	start, nothing := filepath.Join(dir, "start"), filepath.Join(dir, "nothing.so")
	compileC(t, start, cbuild.Command{Flags: warned, Files: []string{"testdata/start.c"}})
	compileC(t, nothing, cbuild.Command{Flags: []string{"-shared", "-fPIC", "-Dmain=nothing"}, Files: []string{"testdata/start.c"}})
	count := func(library string) (looks, others int) {
		for _, nr := range systemCalls(t, []string{"LD_PRELOAD=" + library}, start) {
			switch nr {
			case unix.SYS_GETSOCKOPT:
				looks++
			case unix.SYS_PREAD64, unix.SYS_MMAP: // as many as the files that are executed and loaded have pieces
			default:
				others++
			}
		}
		return looks, others
	}
	_, bare := count(nothing)
	looks, ours := count(library)
	// These look at the program that is executed, and for an agent and a broker, and the last patch
	// the C library and the dynamic linker.
	if bare == 0 || ours > bare+4+3+7+6 {
		t.Errorf("%d system calls to start a program, with a library that does nothing %d", ours, bare)
	}
	if looks > 32 {
		t.Errorf("%d calls look for a listener", looks)
	}
}

// systemCalls runs a command and returns the numbers of the system calls that it makes between
// its first two calls of getppid.
func systemCalls(t *testing.T, env []string, command ...string) (calls []uint64) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel knows a tracer by its thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		t.Skip(err) // no right to trace
	}
	pid, marks := cmd.Process.Pid, 0
	for entry := false; ; entry = !entry {
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
			t.Fatal(err)
		}
		if status.Exited() || status.Signaled() {
			if _ = cmd.Wait(); status.ExitStatus() != 0 || marks != 2 {
				t.Fatalf("exit status %d after %d marks\n%s", status.ExitStatus(), marks, stderr.Bytes())
			}
			return calls
		}
		var regs unix.PtraceRegs
		if err := unix.PtraceGetRegs(pid, &regs); err != nil {
			t.Fatal(err)
		}
		if entry && regs.Orig_rax == unix.SYS_GETPPID {
			marks++
		} else if entry && marks == 1 {
			calls = append(calls, regs.Orig_rax)
		}
		if err := unix.PtraceSyscall(pid, 0); err != nil {
			t.Fatal(err)
		}
	}
}

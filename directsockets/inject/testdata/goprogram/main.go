// A program whose connections, threads, collections, signals and children a test watches. It prints
// how many of its system calls came to the library.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var wrong atomic.Int64

// echo exchanges checked data over connections of this process.
func echo(connections, exchanges int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				wrong.Add(1)
				return
			}
			defer c.Close()
			in, out := make([]byte, 4096), make([]byte, 4096)
			for k := range exchanges {
				for j := range out {
					out[j] = byte(i + j*k)
				}
				c.Write(out)
				if _, err := io.ReadFull(c, in); err != nil || !bytes.Equal(in, out) {
					wrong.Add(1)
				}
				_ = make([]byte, 100_000)
			}
		})
	}
	all.Wait()
}

// children starts others beside a profile, which interrupts by signals.
func children(n int) {
	var profile bytes.Buffer
	pprof.StartCPUProfile(&profile)
	defer pprof.StopCPUProfile()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range n / 8 {
				if out, err := exec.Command("/bin/echo", "hello").Output(); err != nil || string(out) != "hello\n" {
					wrong.Add(1)
				}
			}
		})
	}
	all.Wait()
}

// cpuTime is how long the process has had a CPU.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// profiled exchanges data for a second of CPU time, and writes where the CPU was to a file.
func profiled(path string) {
	f, err := os.Create(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	pprof.StartCPUProfile(f)
	for begin := cpuTime(); cpuTime()-begin < time.Second; {
		echo(4, 300)
	}
	pprof.StopCPUProfile()
	f.Close()
}

// again has the program start itself.
func again() {
	for _, name := range []string{"/proc/self/exe", os.Args[0]} {
		if out, err := exec.Command(name, "child").CombinedOutput(); err != nil || string(out) != "child\n" {
			fmt.Printf("%s: %v, %s", name, err, out)
			wrong.Add(1)
		}
	}
}

// signals has the process get signals of its own.
func signals(n int) {
	c := make(chan os.Signal, n)
	signal.Notify(c, syscall.SIGUSR1)
	for range n {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		select {
		case <-c:
		case <-time.After(time.Minute):
			wrong.Add(1)
		}
	}
}

// load exchanges checked data on threads of its own until its standard input ends, beside
// collections, children, a profile and signals.
func load(threads int) {
	end := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	var all sync.WaitGroup
	running := func() bool {
		select {
		case <-end:
			return false
		default:
			return true
		}
	}
	for i := range threads {
		all.Go(func() {
			runtime.LockOSThread()
			for k := 0; running(); k++ {
				exchange(l.Addr().String(), byte(i+k), 20)
			}
		})
	}
	all.Go(func() {
		for running() {
			children(8)
			signals(20)
		}
	})
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	close(end)
	all.Wait()
	l.Close()
}

// exchange has a connection carry checked data.
func exchange(addr string, first byte, times int) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Println(err)
		wrong.Add(1)
		return
	}
	defer c.Close()
	in, out := make([]byte, 1000), make([]byte, 1000)
	for range times {
		for j := range out {
			out[j] = first + byte(j)
		}
		first++
		c.Write(out)
		if _, err := io.ReadFull(c, in); err != nil || !bytes.Equal(in, out) {
			wrong.Add(1)
		}
	}
}

func main() {
	switch strings.Join(os.Args[1:], " ") {
	case "":
		echo(50, 20)
		children(200)
		signals(200)
	case "short":
		echo(2, 2)
	case "long":
		echo(8, 600)
	case "load":
		load(200)
	case "load few":
		load(4)
	case "profiled":
		profiled(os.Getenv("EXN_TEST_PROFILE"))
	case "again":
		echo(2, 600)
		again()
	case "child":
		fmt.Println("child")
		return
	case "maps":
		text, _ := os.ReadFile("/proc/self/maps")
		os.Stderr.Write(text)
	}
	self, err := os.Executable()
	if err != nil || strings.Join(os.Args[1:], " ") != os.Getenv("EXN_TEST_ARGS") {
		wrong.Add(1)
	}
	// The kernel answers 6578 with the parent each time, the library with its count.
	before, _, _ := syscall.RawSyscall(syscall.SYS_GETPPID, 0x6578, 0, 0)
	calls, _, _ := syscall.RawSyscall(syscall.SYS_GETPPID, 0x6578, 0, 0)
	if calls == before {
		calls = 0
	}
	fmt.Println("self", self, "pid", os.Getpid(), "wrong", wrong.Load(), "calls", calls, "version", runtime.Version())
}

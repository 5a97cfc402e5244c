// A program with cgo, whose C and Go code use the same connections, on threads that Go made and on
// threads that C made. It prints how often something was wrong.
package main

/*
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

// Sends back the next n bytes of fd. Returns how many.
static long echo(int fd, char *p, long n)
{
	struct pollfd f = {fd, POLLIN, 0};
	long have = 0, sent = 0, r;

	while (have < n && poll(&f, 1, 60000) == 1)
		if ((r = read(fd, p + have, n - have)) > 0)
			have += r;
		else if (r == 0 || errno != EAGAIN)
			return have;
	f.events = POLLOUT;
	while (sent < have && poll(&f, 1, 60000) == 1)
		if ((r = write(fd, p + sent, have - sent)) > 0)
			sent += r;
		else if (r == 0 || errno != EAGAIN)
			return sent;
	return sent;
}

extern void called(void);
static void *thread(void *arg)
{
	called();
	return arg;
}

// Has threads of C call Go, n at once, several times.
static int threads(int n, int times)
{
	pthread_t t[64];

	for (int k = 0; k < times; k++) {
		for (int i = 0; i < n; i++)
			if (pthread_create(&t[i], NULL, thread, NULL) != 0)
				return -1;
		for (int i = 0; i < n; i++)
			pthread_join(t[i], NULL);
	}
	return 0;
}
*/
import "C"

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

//go:debug netdns=cgo

var wrong atomic.Int64

// check counts what is wrong.
func check(ok bool, what string, args ...any) {
	if !ok && wrong.Add(1) < 10 {
		fmt.Println("wrong:", what, args)
	}
}

// pair returns the ends of a connection that has moved enough bytes to be direct.
func pair() (a, b *net.TCPConn) {
	l, err := net.Listen("tcp", "localhost:0")
	check(err == nil, "listen", err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	check(err == nil, "dial", err)
	s, err := l.Accept()
	check(err == nil, "accept", err)
	a, b = c.(*net.TCPConn), s.(*net.TCPConn)
	go func() { _, _ = io.CopyN(b, b, 300<<10) }()
	for range 300 {
		exchange(a, 1<<10, nil)
	}
	return a, b
}

// exchange has n bytes come back over a connection; back does so, nil: somebody else.
func exchange(c net.Conn, n int, back func()) {
	out, in := make([]byte, n), make([]byte, n)
	for i := range out {
		out[i] = byte(i*7 + n)
	}
	_, err := c.Write(out)
	check(err == nil, "write", err)
	if back != nil {
		back()
	}
	_, err = io.ReadFull(c, in)
	check(err == nil && bytes.Equal(in, out), "read", err)
}

// mixed has C and Go answer by turns.
func mixed() {
	a, b := pair()
	defer a.Close()
	defer b.Close()
	raw, err := b.SyscallConn()
	check(err == nil, "descriptor", err)
	buf := make([]byte, 5000)
	for i := range 400 {
		n := 1 + i*12
		exchange(a, n, func() {
			if i%2 == 0 {
				_, err := io.CopyN(b, b, int64(n))
				check(err == nil, "copy", err)
				return
			}
			err := raw.Control(func(fd uintptr) {
				sent := C.echo(C.int(fd), (*C.char)(unsafe.Pointer(&buf[0])), C.long(n))
				check(int(sent) == n, "echo", sent)
			})
			check(err == nil, "control", err)
		})
	}
}

// requests are of net/http, to a name.
func requests() {
	addresses, err := net.LookupHost("localhost")
	check(err == nil && slices.Contains(addresses, "127.0.0.1"), "localhost", addresses, err)
	l, err := net.Listen("tcp", "localhost:0")
	check(err == nil, "listen", err)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check(err == nil, "body", err)
		_, _ = w.Write(body)
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 100 {
				body := bytes.Repeat([]byte{byte(i + k)}, 10_000)
				r, err := http.Post("http://localhost:"+port, "text/plain", bytes.NewReader(body))
				if err != nil {
					check(false, "post", err)
					continue
				}
				text, err := io.ReadAll(r.Body)
				r.Body.Close()
				check(err == nil && bytes.Equal(text, body), "answer", err)
			}
		})
	}
	all.Wait()
}

// inherited gives children a connection that this process has used.
func inherited() {
	for range 5 {
		a, b := pair()
		f, err := b.File()
		check(err == nil, "file", err)
		cmd := exec.Command("sh", "-c", `read -r line <&3; echo "child $line" >&3`)
		cmd.ExtraFiles = []*os.File{f}
		check(cmd.Start() == nil, "start")
		fmt.Fprintln(a, "hello")
		line := make([]byte, len("child hello\n"))
		_, err = io.ReadFull(a, line)
		check(err == nil && string(line) == "child hello\n", "child", err, string(line))
		check(cmd.Wait() == nil, "wait")
		f.Close()
		b.Close()
		a.Close()
	}
}

//export called
func called() {
	a, b := pair()
	exchange(a, 9000, func() { _, _ = io.CopyN(b, b, 9000) })
	a.Close()
	b.Close()
}

// threads end, and others begin: those of C, which call Go, and those of Go, which end with their
// goroutine.
func threads() {
	check(C.threads(8, 8) == 0, "threads")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 8 {
				done := make(chan struct{})
				go func() {
					runtime.LockOSThread()
					called()
					close(done)
				}()
				<-done
			}
		})
	}
	all.Wait()
}

// disturb collects, and preempts, until stop is closed.
func disturb(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			runtime.GC()
			for i := range 1_000_000 {
				_ = i
			}
		}
	}
}

func main() {
	stop := make(chan struct{})
	var profile bytes.Buffer
	check(pprof.StartCPUProfile(&profile) == nil, "profile")
	go disturb(stop)
	for _, part := range []func(){mixed, requests, inherited, threads} {
		part()
	}
	close(stop)
	pprof.StopCPUProfile()
	fmt.Println("wrong", wrong.Load())
}

package preload

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// signalSafe are the calls that POSIX lists as async-signal-safe (POSIX.1-2017, 2.4.3, and the
// newer forms of some), without those that only change memory.
const signalSafe = `_Exit _Fork _exit abort accept accept4 access aio_error aio_return aio_suspend alarm bind
	chdir chmod chown clock_gettime close connect creat dup dup2 dup3 execl execle execv execve faccessat
	fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fexecve fork fstat fstatat fsync ftruncate futimens
	getegid geteuid getgid getgroups getpeername getpgrp getpid getppid getsockname getsockopt getuid kill
	link linkat listen longjmp lseek lstat mkdir mkdirat mkfifo mkfifoat mknod mknodat open openat pause pipe
	pipe2 poll posix_trace_event ppoll pselect pthread_kill pthread_self pthread_sigmask raise read readlink
	readlinkat recv recvfrom recvmsg rename renameat rmdir select sem_post send sendmsg sendto setgid setpgid
	setsid setsockopt setuid shutdown sigaction siglongjmp signal sigpause sigpending sigprocmask sigqueue
	sigset sigsuspend sleep sockatmark socket socketpair stat symlink symlinkat tcdrain tcflow tcflush
	tcgetattr tcgetpgrp tcsendbreak tcsetattr tcsetpgrp time timer_getoverrun timer_gettime timer_settime times
	umask uname unlink unlinkat utime utimensat utimes wait waitpid write`

// cancellable are the calls that POSIX has a thread cancelled in, as far as they are about sockets.
// close is none here: the library has it end what it has begun.
const cancellable = `accept accept4 connect poll ppoll pselect read readv recv recvfrom recvmsg select send sendmsg
	sendto write writev`

var hooked = regexp.MustCompile(`(?m)^(?:EXPORT.*?\b|ALIAS\(|JUMP\()(\w+)[(,)]`)

// Each call of POSIX's list that the library hooks is made by a probe in a signal handler, and
// interrupted by one; and those that wait have a probe that cancels a thread in them.
func TestSignalSafeCallsHaveProbes(t *testing.T) {
	read := func(files ...string) string {
		var all strings.Builder
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.String()
	}
	sources, err := filepath.Glob("hooks/*.c")
	if err != nil {
		t.Fatal(err)
	}
	hooks := make(map[string]bool)
	for _, m := range hooked.FindAllStringSubmatch(read(sources...), -1) {
		hooks[m[1]] = true
	}
	for names, probes := range map[string][]string{signalSafe: {"probes/jumps.c", "probes/signals.c"}, cancellable: {"probes/cancel.c"}} {
		text, n := read(probes...), 0
		for _, name := range strings.Fields(names) {
			if !hooks[name] {
				continue
			}
			n++
			if !regexp.MustCompile(`\b` + name + `\(`).MatchString(text) {
				t.Errorf("no probe of %v has %s", probes, name)
			}
		}
		if n < 15 {
			t.Errorf("only %d of the calls for %v are hooked", n, probes)
		}
	}
}

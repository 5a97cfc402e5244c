//go:build amd64

package inject

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestEnds has filters that let all calls pass, fail one of the library's, or end the program for
// one.
func TestEnds(t *testing.T) {
	const ret, load, equal = unix.BPF_RET | unix.BPF_K, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	of := func(call, answer uint32) []unix.SockFilter {
		return []unix.SockFilter{{Code: load}, {Code: equal, K: call, Jf: 1}, {Code: ret, K: answer}, {Code: ret, K: answerAllow}}
	}
	const killProcess, killThread, trap, trace = 0x80000000, 0, 0x00030000, 0x7ff00000
	for name, test := range map[string]struct {
		filter []unix.SockFilter
		ends   bool
	}{
		"all pass":          {of(unix.SYS_SOCKET, answerAllow), false},
		"one fails":         {of(unix.SYS_SOCKET, answerErrno|uint32(unix.EPERM)), false},
		"one is logged":     {of(unix.SYS_SOCKET, answerLog), false},
		"one kills":         {of(unix.SYS_MEMFD_CREATE, killProcess), true},
		"one kills thread":  {of(unix.SYS_WRITE, killThread), true},
		"one raises SIGSYS": {of(unix.SYS_SOCKET, trap), true},
		"one is traced":     {of(unix.SYS_SOCKET, trace), true},
		"another kills":     {of(unix.SYS_REBOOT, killProcess), false},
		"not a filter":      {[]unix.SockFilter{{Code: 0xffff}}, true},
		"none":              {nil, true},
	} {
		if is := filterEnds(test.filter); is != test.ends {
			t.Errorf("%s: %v", name, is)
		}
	}
}

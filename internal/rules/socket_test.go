package rules

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The class of a rule, or else that of the environment, is the DSCP of a connection's packets,
// unless the program has set it.
func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		name, network, address string
		policy                 Policy
		tos                    int // that the program sets before
		want                   Class
	}{
		{"none", "tcp4", "127.0.0.1:0", Policy{}, 0, 0},
		{"environment", "tcp4", "127.0.0.1:0", Policy{Class: 10}, 0, 10},
		{"IPv6", "tcp6", "[::1]:0", Policy{Class: 63}, 0, 63},
		{"rule", "tcp4", "127.0.0.1:0", Policy{Class: 10, Rules: Rules{{Program: "*", High: 65535, Class: 12, Classed: true}}}, 0, 12},
		{"rule without", "tcp4", "127.0.0.1:0", Policy{Class: 10, Rules: Rules{{Program: "*", High: 65535}}}, 0, 10},
		{"rule for none", "tcp4", "127.0.0.1:0", Policy{Class: 10, Rules: Rules{{Program: "*", High: 65535, Classed: true}}}, 0, 0},
		{"program", "tcp4", "127.0.0.1:0", Policy{Class: 10}, 0xb8, 46},
		{"malformed rules", "tcp4", "127.0.0.1:0", Policy{Class: 10, Off: true}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen(tt.network, tt.address)
			if err != nil {
				t.Skip(err)
			}
			defer l.Close()
			conn, err := net.Dial(tt.network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			raw, err := conn.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if tt.tos != 0 {
				err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tt.tos) })
				if err != nil {
					t.Fatal(err)
				}
			}
			server := netip.MustParseAddrPort(l.Addr().String())
			tt.policy.Classify(raw, Client, server)
			if c := DSCP(raw, server.Addr()); c != tt.want {
				t.Errorf("class %d, want %d", c, tt.want)
			}
		})
	}
}

// A class that is none is reported, and is none.
func TestClassFromEnvironment(t *testing.T) {
	for text, want := range map[string]Class{"": 0, "0": 0, "10": 10, "63": 63, "64": 0, "-1": 0, "x": 0, "1 ": 0} {
		t.Setenv(Env, "")
		t.Setenv(EnvClass, text)
		var said words
		if c := FromEnvironment(&said).Class; c != want || (said > 0) != (want == 0 && text != "" && text != "0") {
			t.Errorf("%q: class %d, want %d; %d messages", text, c, want, said)
		}
	}
}

// words counts messages.
type words int

func (w *words) Write(p []byte) (int, error) { *w++; return len(p), nil }

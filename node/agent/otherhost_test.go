package agent

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

// otherHost attaches a host to the lab's bridge that has another kernel, as far as this one can
// tell: its TCP is netstack's, behind a packet socket. It echoes what comes to a port of
// 172.30.0.9.
func (l *lab) otherHost(port uint16) {
	t := l.t
	t.Helper()
	far := netnstest.New(t)
	l.attach(far, "br0", "v9")
	fd, mac := -1, net.HardwareAddr(nil)
	if err := far.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		mac = i.HardwareAddr
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL))); err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: i.Index})
	}); err != nil {
		t.Fatal(err)
	}
	// Between veths no checksums are computed.
	link, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: 1500, EthernetHeader: true, Address: tcpip.LinkAddress(mac), RXChecksumOffload: true})
	if err != nil {
		t.Fatal(err)
	}
	ns := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	t.Cleanup(ns.Destroy)
	if err := ns.CreateNIC(1, link); err != nil {
		t.Fatal(err)
	}
	addr := tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFrom4([4]byte{172, 30, 0, 9}), Port: port}
	if err := ns.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: addr.Addr.WithPrefix()}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	ns.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	ln, err := gonet.ListenTCP(ns, addr, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		echo(ln)
	}()
	t.Cleanup(func() { ln.Close(); <-done })
}

// A connection to another host stays on TCP, also where a container of this one listens at the
// same port, and status says why, as exn-run --explain does; what it carries is whole.
func TestRootOtherHost(t *testing.T) {
	for _, tt := range []struct {
		name    string
		as      language
		explain bool
	}{{"C", inC, false}, {"Go", inGo, false}, {"explain", inC, true}} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			l.otherHost(8080)
			l.chat(l.b, inGo, "server", "172.30.0.3", 8080)
			near := l.chat(l.a, tt.as, "client", "172.30.0.3", 8080)
			l.becomesDirect(l.a, near) // so that the listener is shown
			var said bytes.Buffer
			cmd := l.program(tt.as, "client", "172.30.0.9", 8080)
			if tt.explain {
				dir, err := testlab.Build("exn-run")
				t.Cleanup(func() { os.RemoveAll(dir) })
				if err != nil {
					t.Fatal(err)
				}
				cmd = exec.Command(filepath.Join(dir, "exn-run"), append([]string{"--explain", "--"}, cmd.Args...)...)
				cmd.Stderr = &said
			}
			far := l.run(l.a, cmd)
			l.see(cmd.Process.Pid)
			if got := far.do("open"); got != "ok" {
				t.Fatal("open: ", got)
			}
			l.within(timeLimit, "the reason", func() bool {
				if got := far.do("ask 20 60"); got != "ok" {
					t.Fatal("ask: ", got)
				}
				for _, x := range l.connections(l.a) {
					if x.Remote.Addr() == netip.AddrFrom4([4]byte{172, 30, 0, 9}) {
						if x.Mode == connstats.ModeDirect.String() || x.Sent.DirectBytes+x.Received.DirectBytes > 0 {
							t.Fatalf("it is direct: %+v", x)
						}
						return x.Reason == connstats.WhyNoPair.String()
					}
				}
				return false
			})
			if !tt.explain {
				return
			}
			far.in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			const want = "172.30.0.9:8080: tcp: its other end is on another host"
			if !strings.Contains(said.String(), want) {
				t.Errorf("exn-run --explain says %q, want %q", said.String(), want)
			}
		})
	}
}

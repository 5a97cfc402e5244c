package tun_test

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
)

// benchPaths are the bare relay between two devices, which is the bound of all
// that does more, and the kernel's own link between two namespaces.
var benchPaths = []struct {
	name string
	make func(b *testing.B) [2]*netns.NS
}{
	{"path=veth", vethPair},
	{"path=tun/mtu=1500", func(b *testing.B) [2]*netns.NS { return newPair(b, 1500, false).ns }},
	{"path=tun/mtu=65535", func(b *testing.B) [2]*netns.NS { return newPair(b, 65535, false).ns }},
	{"path=tun/mtu=65535/poller=own", func(b *testing.B) [2]*netns.NS { return newPair(b, 65535, true).ns }},
}

func vethPair(b *testing.B) [2]*netns.NS {
	ns := [2]*netns.NS{netnstest.New(b), netnstest.New(b)}
	end := func(i int, name, addr string) hostnet.VethEnd {
		return hostnet.VethEnd{NS: ns[i], Name: name, Config: hostnet.LinkConfig{Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}}}
	}
	if err := hostnet.CreateVeth(end(0, "va0", "10.2.0.1/24"), end(1, "vb0", "10.2.0.2/24")); err != nil {
		b.Fatal(err)
	}
	return ns
}

// BenchmarkRootStream is TCP in one direction, in writes of 128 KiB.
func BenchmarkRootStream(b *testing.B) {
	for _, path := range benchPaths {
		b.Run(path.name, func(b *testing.B) {
			from, to := connect(b, path.make(b), "10.2.0.2")
			done := make(chan error)
			go func() {
				buf := make([]byte, 128<<10)
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{to}, buf)
				done <- err
			}()
			data := make([]byte, 128<<10)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := from.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			if err := from.(*net.TCPConn).CloseWrite(); err != nil {
				b.Error(err)
			}
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
	}
}

// BenchmarkRootPingPong is a round trip of 64 bytes over TCP.
func BenchmarkRootPingPong(b *testing.B) {
	for _, path := range benchPaths {
		b.Run(path.name, func(b *testing.B) {
			from, to := connect(b, path.make(b), "10.2.0.2")
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, 64)
				for {
					if _, err := io.ReadFull(to, buf); err != nil {
						return
					}
					if _, err := to.Write(buf); err != nil {
						return
					}
				}
			}()
			buf := make([]byte, 64)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := from.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(from, buf); err != nil {
					b.Fatal(err)
				}
			}
			from.Close()
			<-done
		})
	}
}

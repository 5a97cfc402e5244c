package paths

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"exnet/internal/tcpbench"
)

// ServePort is where "dsbench serve" listens.
const ServePort = "7640"

// remotePath is a path to another host, on which dsbench serve runs.
type remotePath struct{ tcpbench.Remote }

func (p remotePath) Setup(ctx context.Context) error { return p.Hello(ctx) }

func (p remotePath) Info() Info { return Info{} }

func (p remotePath) Close() error { return nil }

// remoteKinds are the paths of --connect.
func remoteKinds(addr string) []Kind {
	kind := func(name, about string, t tcpbench.Transport, lacks ...tcpbench.Kind) Kind {
		open := func(NodeConfig) Path { return remotePath{tcpbench.Remote{Addr: addr}} }
		return Kind{Name: name, About: about, Open: over(open, t), Lacks: lacks}
	}
	return []Kind{
		kind("tcp", "kernel TCP to the other host", tcpbench.Kernel),
		kind("ds", "direct sockets, as far as the broker here reaches", tcpbench.Direct),
		kind("ds-zcopy", "the same between registered buffers", tcpbench.ZeroCopy, tcpbench.CRR),
	}
}

// RemoteAddr adds the port to what --connect names.
func RemoteAddr(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), ServePort)
}

// RemoteKindOf finds one by its name.
func RemoteKindOf(addr, name string) (Kind, error) {
	kinds := remoteKinds(addr)
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, fmt.Errorf("unknown path %q: to another host use tcp, ds or ds-zcopy", name)
	}
	return kinds[i], nil
}

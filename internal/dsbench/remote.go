package dsbench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"exnet/internal/tcpbench"
)

const serveHelp = `Usage: dsbench serve [flags]

Is the other end of dsbench MEASURE --connect HOST, on another machine, in another
namespace or container. It does one measurement at a time, for whoever connects:
let it listen only where you know who that can be. Ctrl-C ends it.

Examples:
  dsbench serve
      listens on all addresses, port %[1]s
  dsbench serve --listen 10.2.0.9:9000
      on one address only; there: dsbench stream --connect 10.2.0.9:9000

Flags:
  --listen ADDRESS   where it listens (:%[1]s)
`

// servePort is where dsbench serve listens.
const servePort = "7640"

// runServe does dsbench serve.
func runServe(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	address := fs.String("listen", ":"+servePort, "")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, serveHelp, servePort)
		return exitOK
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "dsbench serve: %v (see dsbench serve -h)\n", err)
		return exitUsage
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *address)
	if err != nil {
		return fail(stderr, "serve", fmt.Errorf("--listen %s: %w", *address, err))
	}
	fmt.Fprintf(stdout, "listening on %v\n", l.Addr())
	say := func(text string) { fmt.Fprintln(stderr, text) }
	if err := tcpbench.Serve(ctx, l, say); err != nil {
		return fail(stderr, "serve", err)
	}
	return exitOK
}

// remotePath is a path to another host, on which dsbench serve runs.
type remotePath struct {
	tcpbench.Remote
	transport tcpbench.Transport
}

func (p remotePath) Setup(ctx context.Context) error { return p.Hello(ctx) }

func (p remotePath) Info() PathInfo { return PathInfo{} }

// Measure implements Path.
func (p remotePath) Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	spec.Transport = p.transport
	return p.Remote.Measure(ctx, spec)
}

func (p remotePath) Close() error { return nil }

// remoteKinds are the paths of --connect.
func remoteKinds(addr string) []pathKind {
	kind := func(name, about string, t tcpbench.Transport, lacks ...tcpbench.Kind) pathKind {
		open := func(NodeConfig) Path { return remotePath{tcpbench.Remote{Addr: addr}, t} }
		return pathKind{name: name, about: about, open: open, lacks: lacks}
	}
	return []pathKind{
		kind("tcp", "kernel TCP to the other host", tcpbench.Kernel),
		kind("ds", "direct sockets, as far as the broker here reaches", tcpbench.Direct),
		kind("ds-zcopy", "the same between registered buffers", tcpbench.ZeroCopy, tcpbench.CRR),
	}
}

// remoteAddr adds the port to what --connect names.
func remoteAddr(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), servePort)
}

// remoteKindOf finds one by its name.
func remoteKindOf(addr, name string) (pathKind, error) {
	kinds := remoteKinds(addr)
	i := slices.IndexFunc(kinds, func(k pathKind) bool { return k.name == name })
	if i < 0 {
		return pathKind{}, fmt.Errorf("unknown path %q: to another host there are tcp, ds and ds-zcopy", name)
	}
	return kinds[i], nil
}

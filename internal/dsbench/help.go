package dsbench

import (
	"fmt"
	"strings"

	"exnet/internal/dsbench/paths"

	"exnet/internal/tcpbench"
)

const helpText = `dsbench measures TCP and what replaces it over several paths side by side, in
interleaved runs.

Usage:
%s  dsbench MEASURE -h         flags and examples
  dsbench --version

Paths:
%s  exn and exn-shm also take a receive mode, as in exn:irq: %s.

It sets up the paths itself and removes them. Without root it uses a user
namespace where that is allowed. Results go to standard output, all else to
standard error. How far the two CPUs are from each other is measured first, and
shown with every result. Exit status: 0 measured, 1 failed or interrupted (what
was measured until then is printed), 2 wrong usage.
`

// measureHelp texts: what is measured, and examples.
var measureHelps = map[string]string{
	"stream": `Measures bandwidth: how much the receiving program gets, in Gbit/s.

Examples:
  dsbench stream
      all paths, 128 KiB messages, 5 runs of 1 second each
  dsbench stream --paths veth,exn --streams 2 --duration 2s
      two connections at once over exn0, compared with veth
  dsbench stream --paths veth,exn --size 64,1k,16k,128k --runs 3 --json
      bandwidth over message size, as JSON
  dsbench stream --paths exn --no-fast-path --mtu 9000
      every packet through netstack, at a smaller MTU; veth is added
  dsbench stream --paths veth,exn:irq,exn:napi,exn:busy
      the receive modes side by side
  dsbench stream --paths lo,ds --cpus same --chunk 32k
      direct sockets with both ends on one CPU
  dsbench stream --connect 10.2.0.9
      to another host, where dsbench serve runs
`,
	"pingpong": `Measures latency: half the time of a round trip, in microseconds.

Examples:
  dsbench pingpong
      all paths, 64-byte messages, 5 runs of 1 second each
  dsbench pingpong --paths veth,exn --size 1,64,512,2048 --runs 10
      latency over message size
  dsbench pingpong --paths lo,veth,exn --cpus any --congestion bbr --json
      where the scheduler places the two ends, with BBR, as JSON
  dsbench pingpong --paths lo --cpus same
      both ends on one CPU
`,
	"crr": `Measures connections: connect, request, response, close; how many a second,
and how long one takes. The server closes first, as one of HTTP/1.0 does.

Examples:
  dsbench crr
      all paths that have connections, 64-byte requests and responses
  dsbench crr --paths veth,exn --streams 4
      four clients at once
`,
	"rate": `Measures message rate: small messages one way, each leaving at once
(TCP_NODELAY), in millions a second.

Examples:
  dsbench rate
      all paths, 64-byte messages
  dsbench rate --paths lo,veth,exn --size 1,64,512,4k --direction in
      message rate over message size; the end that listens sends
`,
	"cpu": `Measures the price: CPU time, user and system, of all processes of the path,
in seconds for a gigabyte.

Examples:
  dsbench cpu
      all paths, 128 KiB messages
  dsbench cpu --paths veth,exn:irq,exn:napi,exn:itr --size 64,1k,8k,64k --no-delay
      the receive modes over message size; every message is a frame
  dsbench cpu --paths exn-shm --rx-mode napi --coalesce 16/50
      interrupts held back until 16 frames came, or 50 microseconds went by
`,
}

const flagHelp = `
Flags:
  --paths LIST       paths to measure (%[1]s)
  --connect HOST     to another host, on which dsbench serve runs; the paths are tcp,
                     ds and ds-zcopy then (tcp)
  --control PATH     path that the others are compared with; added to the paths
                     if it is not among them (veth; lo without veth and exn)
  --size LIST        bytes of a message; k and m for 2^10 and 2^20 (%[2]s)
  --duration TIME    measured time of a run (1s)
  --warmup TIME      time before that, not measured (300ms)
  --runs N           runs of each path and size; 3 or more show noise (5)
`

const streamsHelp = `  --streams N        connections, or clients, at once (1)
`

const directionHelp = `  --direction WHERE  out: the end that connects sends; in: the other one (out)
`

const noDelayHelp = `  --no-delay         TCP_NODELAY: every message leaves at once
`

const flagHelpEnd = `  --congestion NAME  TCP congestion control on every path (cubic)
  --cpus WHERE       CPUs of the end that connects and the one that listens: any
                     (the scheduler's choice), apart or different (two), same
                     (one), or two numbers as in 0,1; netstack's are not bound
                     (%[1]s)
  --buffers SIZE     socket buffers of the kernel's TCP (the kernel's choice)
  --mtu BYTES        MTU of exn0 and of netstack (65535)
  --eager-threshold BYTES
                     longest frame that goes over VELO (480)
  --rx-mode MODE     how exn0 receives: napi, interrupt or busy (napi)
  --coalesce HOW     interrupts held back: off, adaptive (the dynamic ITR), or
                     FRAMES/MICROSECONDS (off)
  --no-fast-path     exn0: every packet through netstack
  --chunk SIZE       ds: bytes that are copied to the ring at a time (64k)
  --ring SIZE        ds: bytes of a ring (1m)
  --spin TIME        ds: how long it looks before it sleeps; -1ns: not at all (50us)
  --json             one JSON object a line instead of a table
`

func generalHelp() string {
	var commands, list strings.Builder
	for _, m := range measures() {
		fmt.Fprintf(&commands, "  dsbench %-8s [flags]   %s\n", m.name, m.about)
	}
	for _, k := range paths.Kinds() {
		fmt.Fprintf(&list, "  %-9s %s\n", k.Name, k.About)
	}
	var modes []string
	for _, v := range paths.Variants {
		modes = append(modes, v.Name)
	}
	for _, c := range []struct{ name, about string }{
		{"programs", "real programs, with exn-run and without"},
		{"report", "everything, as one HTML page and JSON"},
		{"tune", "finds settings that suit the machine; writes a configuration"},
		{"compare", "what changed between two runs, beyond the noise"},
		{"serve", "the other end of MEASURE --connect HOST"},
	} {
		fmt.Fprintf(&commands, "  dsbench %-8s [flags]   %s\n", c.name, c.about)
	}
	return fmt.Sprintf(helpText, commands.String(), list.String(), strings.Join(modes, ", "))
}

func measureHelp(m measure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: dsbench %s [flags]\n\n%s", m.name, measureHelps[m.name])
	fmt.Fprintf(&b, flagHelp, defaultPaths(m), m.size)
	for _, part := range []struct {
		has  bool
		text string
	}{
		{m.streams, streamsHelp},
		{m.oneWay(), directionHelp},
		{m.kind == tcpbench.Stream, noDelayHelp},
	} {
		if part.has {
			b.WriteString(part.text)
		}
	}
	fmt.Fprintf(&b, flagHelpEnd, m.cpus)
	return b.String()
}

package dsbench

import (
	"fmt"
	"strings"
)

const helpText = `dsbench measures TCP over several paths side by side, in interleaved runs.

Usage:
  dsbench stream   [flags]   bandwidth of one or more connections
  dsbench pingpong [flags]   latency: half a round trip
  dsbench MEASURE -h         flags and examples
  dsbench --version

Paths:
%s
It sets up the paths itself and removes them. Without root it uses a user
namespace where that is allowed. Results go to standard output, all else to
standard error. Exit status: 0 measured, 1 failed or interrupted (what was
measured until then is printed), 2 wrong usage.
`

const streamHelp = `Usage: dsbench stream [flags]

Measures bandwidth: how much the receiving program gets, in Gbit/s.

Examples:
  dsbench stream
      all paths, 128 KiB messages, 5 runs of 1 second each
  dsbench stream --paths veth,exn --streams 2 --duration 2s
      two connections at once over exn0, compared with veth
  dsbench stream --paths veth,exn --size 64,1k,16k,128k --runs 3 --json
      bandwidth over message size, as JSON
  dsbench stream --paths exn --no-fast-path --mtu 9000
      every packet through netstack, at a smaller MTU; veth is added
  dsbench stream --paths veth,exn,exn-shm
      two nodes in one process, and in a process each, as exn-tun up makes them

Flags:
%s  --streams N        connections at once (1)
%s`

const pingPongHelp = `Usage: dsbench pingpong [flags]

Measures latency: half the time of a round trip, in microseconds.

Examples:
  dsbench pingpong
      all paths, 64-byte messages, 5 runs of 1 second each
  dsbench pingpong --paths veth,exn --size 1,64,512,2048 --runs 10
      latency over message size
  dsbench pingpong --paths lo,veth,exn --cpus any --congestion bbr --json
      where the scheduler places the two ends, with BBR, as JSON

Flags:
%s%s`

const flagHelp = `  --paths LIST       paths to measure (%[1]s)
  --control PATH     path that the others are compared with; added to the paths
                     if it is not among them (veth; lo without veth and exn)
  --size LIST        bytes of a message; k and m for 2^10 and 2^20 (%[2]s)
  --duration TIME    measured time of a run (1s)
  --warmup TIME      time before that, not measured (300ms)
  --runs N           runs of each path and size; 3 or more show noise (5)
`

const flagHelpEnd = `  --congestion NAME  TCP congestion control on every path (cubic)
  --cpus WHERE       CPUs of sender and receiver: any (the scheduler's choice),
                     apart (two different ones), or two numbers as in 0,1;
                     netstack's are not bound (%[1]s)
  --mtu BYTES        MTU of exn0 and of netstack (65535)
  --no-fast-path     exn0: every packet through netstack
  --json             one JSON object a line instead of a table
`

func generalHelp() string {
	var b strings.Builder
	for _, k := range pathKinds() {
		fmt.Fprintf(&b, "  %-9s %s\n", k.name, k.about)
	}
	return fmt.Sprintf(helpText, b.String())
}

func measureHelp(m measure) string {
	if m.name == "stream" {
		return fmt.Sprintf(streamHelp, fmt.Sprintf(flagHelp, defaultPaths, "131072"), fmt.Sprintf(flagHelpEnd, "any"))
	}
	return fmt.Sprintf(pingPongHelp, fmt.Sprintf(flagHelp, defaultPaths, "64"), fmt.Sprintf(flagHelpEnd, "apart"))
}

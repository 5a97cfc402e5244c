package exntun

import (
	"fmt"

	"exnet/arp"
	"exnet/exteth"
	"exnet/internal/daemon"
	"exnet/mtu"
	"exnet/napi"
)

const upHelpText = `Usage: exn-tun up [flags]

Runs one node of a fabric in the foreground: brings up exn0 in this network
namespace or another, finds the fabric's other nodes on this host, and carries
packets to and from them through shared memory, until SIGTERM, SIGINT or
exn-tun down. Then nothing is left behind. Once it is up it prints one line.

Examples:
  exn-tun up --addr 10.2.0.1/24
      a node of fabric lab, with a free node ID
  exn-tun up --netns b --addr 10.2.0.2/24 --addr6 fd00:10:2::2/64
      another one, in a namespace that ip netns add b made
  exn-tun up --config /etc/exn/lab.toml --node 7
      with a configuration file; flags win over it

The fabric:
  --fabric NAME        name of the fabric (lab)
  --dir DIR            where its nodes meet (/run/exn/NAME; without root
                       $XDG_RUNTIME_DIR/exn/NAME)
  --group GROUP        users of this group may join, too
  --node ID            node ID, 0 to %[8]d (the lowest free one)
  --topology torus:4x4x4|mesh:3x2|FILE
                       how it is wired, the same for all nodes (each is one hop
                       from every other)

The interface:
  --addr ADDR/BITS     IPv4 address and length of its network; may be repeated
  --addr6 ADDR/BITS    IPv6 address; a link-local one is there in any case
  --mtu BYTES          %[1]d to %[2]d (%[2]d)
  --netns NAME|PATH    namespace of ip netns, or such as /proc/PID/ns/net
  --interface NAME     (exn0)
  --mac-prefix XX:XX:XX:XX
                       what MAC addresses begin with, for all the same
                       (%[7]v)
  --congestion NAME    TCP congestion control over it (the system's)

The data path:
  --mode MODE          how frames are received: napi, interrupt or busy (napi)
  --coalesce-usecs N   hold back an interrupt for so long (0)
  --coalesce-frames N  or until so many frames are there (0: not counted)
  --adaptive           dynamic interrupt throttling instead
  --velo-budget N      VELO messages in one poll, 1 to %[5]d (%[6]d)
  --rma-budget N       RMA notifications in one poll, 1 to %[5]d (%[6]d)
  --eager-threshold B  longest frame that goes as VELO messages, %[3]d or more
                       (%[4]d); longer ones go by rendezvous
  --no-fast-path       send every packet through netstack
  --fair               no real-time priority

Others:
  --config FILE        TOML; see docs/daemon.md, and exn-tun check
  --metrics [ADDR]:PORT
                       serve Prometheus metrics over HTTP at /metrics; without
                       ADDR on 127.0.0.1 only. See docs/metrics.md (off)
  --faults LIST        for tests: what happens to packets that leave this node,
                       as in drop=0.01,corrupt=0.001,seed=1; also duplicate and
                       reorder (probabilities), delay and jitter (times). Its
                       links then are not memory, and make up for all of it
  --foreground         stay in the foreground, which it does anyway
`

func upHelp() string {
	return fmt.Sprintf(upHelpText, mtu.MinIPv6, mtu.Default, exteth.MinEagerThreshold,
		exteth.DefaultEagerThreshold, napi.MaxBudget, napi.DefaultBudget, arp.DefaultPrefix(), daemon.MaxNode)
}

const whereHelp = `  --fabric NAME        name of the fabric (lab)
  --dir DIR            its directory (/run/exn/NAME; without root
                       $XDG_RUNTIME_DIR/exn/NAME)
  --node ID            this node only (all of the fabric on this host)
`

const downHelp = `Usage: exn-tun down [flags]

Ends the nodes of a fabric on this host, waits until they are gone, and removes
what killed ones left.

Examples:
  exn-tun down
  exn-tun down --fabric lab --node 2

Flags:
` + whereHelp

const statusHelp = `Usage: exn-tun status [flags]

Shows the nodes of a fabric on this host: the interface, neighbours, routes,
peers and their links, multicast groups, the receive mode with interrupts, polls
and work per poll, thresholds, and every counter. With --sockets it shows the
connections of programs that use direct sockets in the node's namespace instead.

Examples:
  exn-tun status --node 1
  exn-tun status --watch
  exn-tun status --sockets --watch
  exn-tun status --json | jq '.[].counters."exn.tx_stalls"'
  exn-tun status --sockets --json | jq '.[].connections[].mode'

Flags:
` + whereHelp + `  --sockets            direct sockets: how each connection goes, and why
  --json               one JSON array with an object for each node
  --watch              again and again, until SIGINT
  --interval TIME      time between two looks (1s)
`

const topoHelp = `Usage: exn-tun topo [flags]

Draws how a fabric is wired. Without a topology in the flags it asks the nodes
that are up on this host, which were started with exn-tun up --topology: each
link is drawn with what it has carried, and nodes that are not up are marked.

Examples:
  exn-tun topo --torus 4x4x4
  exn-tun topo --file lab.toml --svg lab.svg
  exn-tun topo --fabric lab
  exn-tun topo --json | jq '.links[] | select(.ab.bytes > 0)'

What to draw:
  --torus DIMS         a torus, such as 8, 4x4 or 4x4x4; IDs from 1 on
  --mesh DIMS          a mesh
  --file FILE          what a topology file says; see docs/fabric.md

How:
  --svg FILE           as SVG to a file, or - for standard output (as text)
  --json               one JSON object: nodes, links, packets and bytes

Flags, for nodes that are up:
` + whereHelp + `
With --node it shows what this node has sent and fetched.
`

const setHelp = `Usage: exn-tun set [flags] SETTING=VALUE...

Changes how a running node receives frames, while traffic goes on.

Examples:
  exn-tun set mode=busy
  exn-tun set --node 2 mode=napi coalesce-usecs=50 coalesce-frames=16
  exn-tun set adaptive=on

Settings:
  mode=napi            interrupt, then polling until nothing is left
  mode=interrupt       an interrupt for each frame
  mode=busy            polling all the time; takes a core
  coalesce-usecs=N     hold back an interrupt for so long; 0: not at all
  coalesce-frames=N    or until so many frames are there; 0: not counted
  adaptive=on|off      dynamic interrupt throttling instead of these two

Flags:
` + whereHelp

const captureHelp = `Usage: exn-tun capture [flags]

Writes the Ethernet frames of a node's interface as pcapng, with their checksums
filled in, until SIGINT, or until the reader or the node ends. Segments that are
to be cut appear as they are. Frames that the reader is too slow for are missing
in the capture, not in the traffic.

Examples:
  exn-tun capture --node 1 | tcpdump -n -r -
  exn-tun capture --node 1 -w exn0.pcapng
  exn-tun capture | wireshark -k -i -

Flags:
` + whereHelp + `  -w FILE              write to a file or named pipe (standard output)
  -s BYTES             no more than so much of each frame; 0: all (0)
`

const checkHelp = `Usage: exn-tun check FILE

Checks a configuration file of exn-tun up: exit status 0 if it is good, else 1
and one line that says what is wrong.

Example:
  exn-tun check /etc/exn/lab.toml
`

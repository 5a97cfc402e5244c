package exntun

import (
	"fmt"

	"exnet/arp"
	"exnet/exteth"
	"exnet/internal/node"
	"exnet/mtu"
	"exnet/napi"
)

const demoHelpText = `Usage: exn-tun demo [flags]
       exn-tun demo [flags] -- COMMAND [ARGUMENT...]
       exn-tun demo [flags] --shell

Brings up nodes with an exn0 each, in network namespaces of their own, on one
fabric in this process. Then it tries ping, TCP and broadcast over exn0,
measures them beside the kernel's own veth, shows how the frames went, and
cleans up. With a command or --shell it runs that in a namespace instead.

Examples:
  exn-tun demo
      two nodes, IPv4 and IPv6; takes about 12 seconds
  exn-tun demo --json | jq .ok
      the same as one JSON object; exit status 0 only if every check passed
  exn-tun demo --serve 'iperf3 -s' -- iperf3 -c 10.2.0.2
      iperf3 over exn0: its server on node 2, its client on node 1
  exn-tun demo --nodes 4 --mtu 9000 --shell
      a shell on node 1 of four; it says how to reach the others
  exn-tun demo --capture x.pcapng -- ping -c 3 10.2.0.2; tcpdump -r x.pcapng
      what went over the fabric
  exn-tun demo -- sh -c 'ping -c 3 $EXN_PEER6 && ip -s link show $EXN_IF'
      the environment has the addresses

What to run:
  -- COMMAND...        run this on node 1; its exit status is exn-tun's
  --shell              run $SHELL there
  --in N               run it on node N instead (1)
  --serve COMMAND      run this beside it, on the next node, as sh -c COMMAND;
                       begins before and ends after it; may be repeated

The fabric:
  --nodes N            number of nodes, 2 to %[1]d (2)
  --mtu BYTES          MTU of exn0, %[2]d to %[3]d (%[3]d)
  --eager-threshold B  longest frame that goes as VELO messages, %[4]d bytes or
                       more (%[5]d); longer ones go by rendezvous (RMA GET), and
                       so do, at any length, TCP segments that the kernel left
                       to be cut (GSO)
  --velo-budget N      VELO messages in one poll, 1 to %[6]d (%[7]d)
  --rma-budget N       RMA notifications in one poll, 1 to %[6]d (%[7]d)
  --mac-prefix XX:XX:XX:XX
                       what MAC addresses begin with (%[8]v)
  --no-fast-path       send every packet through netstack
  --fair               no real-time priority for the data path
  --congestion NAME    TCP congestion control over exn0 and veth (cubic)
  --faults LIST        bad links: what happens to their packets, in both
                       directions, as in drop=0.01,corrupt=0.001,seed=1; also
                       duplicate, reorder (probabilities), delay and jitter
                       (times); all of it is made up for, and counted (--stats).
                       Up to 32 nodes. Without, memory joins the nodes

The demonstration:
  --duration TIME      measured time of a run (250ms)
  --runs N             runs of each measurement (3)
  --json               one JSON object instead of the table
  --stats              print all counters at the end, also after a command
  --capture FILE       write the frames of all nodes to this file or named pipe
                       as pcapng, for tcpdump -r and Wireshark; also with a
                       command. It does not slow the fabric: what FILE is too
                       slow for is lost to it, and counted

Environment of the commands:
  EXN_NODE, EXN_NODES  number of its node, number of nodes
  EXN_IF               its interface, exn0
  EXN_ADDR, EXN_ADDR6  its own addresses
  EXN_PEER, EXN_PEER6  those of the next node
  EXN_PEERS, EXN_PEERS6
                       those of all other nodes
  EXN_BROADCAST        the broadcast address
  EXN_NS1, EXN_NS2...  the namespaces, as in nsenter --net=$EXN_NS2 ip addr
`

func demoHelp() string {
	return fmt.Sprintf(demoHelpText, node.MaxNodes, mtu.MinIPv6, mtu.Default,
		exteth.MinEagerThreshold, exteth.DefaultEagerThreshold,
		napi.MaxBudget, napi.DefaultBudget, arp.DefaultPrefix())
}

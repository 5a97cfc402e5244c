// Package ipstack is the IP layer of a node: it joins the network interface exn
// (below, Ethernet frames), a gVisor netstack instance, and the TUN device of
// the host (above, IP packets), if there is one.
//
// # Architecture
//
//	host kernel: TCP, UDP, sockets              Go program: gonet
//	     │ FromHost        ▲ Host.WritePacket        │   ▲
//	     ▼                 │                         ▼   │
//	  fast path ── arp.Table ◄── neighbour ──── netstack: routes, ARP, NDP,
//	     │                 ▲      events        fragments, IGMP/MLD, (TCP, UDP)
//	     │                 │                         │   ▲
//	     ▼ Link.Post       │ ReceiveFrame            ▼   │ Link.TransmitCopy
//	  ─────────────────────── exn (Link) ───────────────────────
//
// There are two modes. With a Host, the kernel owns transport and netstack is
// the lower half of the host's IP layer. It is not a router: hop limits are
// untouched and the remote host is one hop away. The kernel's addresses and
// routes on its interface are mirrored into netstack (AddAddress, AddRoute), so
// that netstack can answer ARP and NDP for them and find next hops. Without a
// Host, netstack is the whole IP layer and Go programs use its TCP and UDP
// (Dial, Listen, ListenPacket).
//
// Transmission with a Host. A unicast packet that fits the MTU, has no options,
// and whose destination is in the table of resolved destinations gets its
// Ethernet header in the buffer's headroom and leaves at once: no lock, no
// allocation, no copy. A fragment is such a packet, too: nothing here looks at
// ports. Multicast takes the same path, as its MAC address follows from its IP
// address. Everything else is copied into netstack, which finds the route,
// resolves the neighbour while it queues the packet, and fragments. A packet
// without a route waits for a moment, since the kernel's routes can arrive after
// its packets. This package makes ICMP errors for the host (neighbour
// unreachable, no route, packet too big), with the destination of the packet as
// their source: the kernel refuses a packet that arrives from one of its own
// addresses (martian source).
//
// Reception with a Host. ARP and NDP end in netstack. IGMP, MLD and packets
// with IPv6 extension headers pass through netstack, and the hook below gives
// them to the host. Every other IP packet goes straight to the host, fragments
// too: the kernel reassembles them.
//
// Membership. With Config.Groups, outgoing IGMP and MLD reports are intercepted:
// they tell which multicast groups the host is a member of (package multicast).
// Every 125 s the host gets a general query, from 0.0.0.0 and from a link-local
// address that no node has. Memberships that it does not report again expire. In
// netstack mode netstack takes the place of the host. The fast path never sees a
// report, because reports have a router alert option.
//
// netstack hands packets to the host at its nftables hook "prerouting"
// (hook.go), the first point after its header checks. That hook costs nothing
// when unused and, unlike its iptables hook, starts no connection tracking.
//
// netstack's neighbour events feed the table of resolved destinations
// (hops.go): an entry exists only while the next hop is REACHABLE, STALE, DELAY, PROBE
// or static (RFC 4861 7.3.2). Packets to a STALE next hop take the fast path as well.
// netstack probes it when the node has nothing else to do (Probe), or after 16 packets.
// So one packet per second, as ping sends, takes the fast path, too.
//
// Offload metadata (checksum not computed yet, segment size) stays with a
// packet on every path: exteth.Offload is a virtio-net header whose offsets
// count from the start of the IP packet.
//
// # Concurrency
//
// FromHost, ReceiveFrame and Stats may be called from many goroutines, and
// ReceiveFrame may call Link.TransmitCopy before it returns (an ARP reply).
// AddAddress, RemoveAddress, AddRoute and RemoveRoute may be called at any time.
// The owner stops calling FromHost and ReceiveFrame before Close; a late call
// is counted and dropped. The package starts no long-lived goroutine; netstack runs
// timers, and in netstack mode its TCP workers, until Close. No lock is held while a frame
// is sent or a packet is passed to the host, so a link may deliver frames in the goroutine
// that sends them.
//
// Locks: Stack.mu (configuration) → netstack's locks → hops.mu, and netstack's
// locks → those of multicast.Members and its Registry. hops.mu is
// taken in netstack's neighbour callbacks, under its neighbour lock, and is a
// leaf: nothing is called under it but the table.
//
// # Limits
//
// netstack keeps 512 dynamic neighbours per family; with more active peers the
// least recently used are resolved again. Duplicate address detection is off:
// an address works the moment it is added. Router advertisements do not reach
// the host, so addresses on a fabric are static. Large segments are TCP only
// (no UFO, no USO).
//
// # Exports
//
// Most of the names are counters, one for each reason to drop a packet.
package ipstack

// Package tun is the TUN device behind exn0: an interface of the kernel whose
// packets this process reads and writes, each with its virtio-net header.
//
// # Architecture
//
//	kernel TCP/IP -> exn0 -> queue -> Read:  virtio_net_hdr | IP packet
//	kernel TCP/IP <- exn0 <-----------Write: virtio_net_hdr | IP packet
//
// The header (VIRTIO 1.3, section 5.1.6; struct virtio_net_hdr of
// linux/virtio_net.h, VnetHdrLen bytes, little endian) says which checksum is
// not computed yet and into which size a segment of up to 64 KB is to be cut.
// It is passed through, so that neither happens between two nodes.
//
// golang.zx2c4.com/wireguard/tun takes the device into service: it makes the
// descriptor non-blocking and negotiates the offloads. Its own Read and Write
// are not used, because they cut the segments and compute the checksums in user
// space, nor is what it runs beside them (two goroutines that watch the
// interface; package hostnet does that for addresses and routes as well).
//
// Read and Write are raw system calls that the Go scheduler does not see. A TUN
// descriptor that is non-blocking copies the packet at once or says ErrAgain,
// so they never sleep, and the hand-over of the processor that surrounds an
// ordinary system call would cost more than it could save. A write runs the
// kernel's receive path, up to the socket, before it returns.
//
// Whoever wants to wait for packets does so in the Go runtime's poller
// (SyscallConn), or with Config.OwnPoller by poll(2), epoll(7) or io_uring(7)
// on Fd.
//
// With Config.TAP the device is a TAP device, an Ethernet interface: an Ethernet header
// stands between the virtio-net header, whose offsets count from it, and the packet.
//
// WatchSenders counts on which CPUs the packets are sent, for a reader that wants to
// be where the programs are.
//
// # Concurrency
//
// All methods may be called from many goroutines; packets of one goroutine stay
// in order. Close waits for calls that are in the kernel, which is short, and
// wakes whoever waits in SyscallConn.
//
// # Limits
//
// Linux only. One queue. The device vanishes with the descriptor: it is not
// persistent, so nothing is left when the process ends in whatever way.
package tun

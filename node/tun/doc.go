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
// golang.zx2c4.com/wireguard/tun sets the device up: it makes the descriptor
// non-blocking and negotiates the offloads. Its Read and Write are not used,
// because they segment and compute checksums in user space; nor are its two
// goroutines that watch the interface (package hostnet does that, for addresses
// and routes as well).
//
// Read and Write are raw system calls that the Go scheduler does not see. A TUN
// descriptor that is non-blocking copies the packet at once or says ErrAgain,
// so they never sleep, and releasing the Go processor around them, as an
// ordinary system call does, would cost more than it saves. A write runs the
// kernel's receive path, up to the socket, before it returns.
//
// To wait for packets, use the Go runtime's poller (SyscallConn), or with
// Config.OwnPoller poll(2), epoll(7) or io_uring(7) on Fd.
//
// With Config.TAP the device is a TAP device, an Ethernet interface: an Ethernet header
// is between the virtio-net header, whose offsets count from it, and the packet.
//
// WatchSenders counts the packets by the CPU that sends them, so that a reader can follow the
// programs to their CPU.
//
// # Concurrency
//
// All methods may be called from many goroutines; packets of one goroutine stay
// in order. Close briefly waits for calls in the kernel, and wakes waiters in
// SyscallConn.
//
// # Limits
//
// Linux only. One queue. The device vanishes with its last descriptor: it is not persistent, so
// nothing is left behind, however the process ends. A process that is to go on with it gets another
// descriptor before (Dup, Config.Left). Packets wait in the interface meanwhile.
package tun

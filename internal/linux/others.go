//go:build !linux

package linux

// A build constraint has no text of its own.
const _ uint8 = "exnet runs on Linux only: memfd, network namespaces, TUN, eventfd, epoll"

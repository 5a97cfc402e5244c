// Package cdi is how a container asks for direct sockets: what it is given, as a specification of
// the Container Device Interface (CDI) and for a kubelet's device plugin.
//
// # Architecture
//
//	libraries ──▶ New ──▶ Spec ─▶ /etc/cdi/exnet.yaml: podman, Docker, containerd, CRI-O
//	                       └────▶ Edits: a kubelet whose runtime has no CDI
//
// The kind has three devices, which differ in how a program comes to the library. All of them give
// the directory of the brokers' sockets, read-only, and EXNET=1, by which an agent finds the
// container and a program that exn-go has built asks.
//
//	all             LD_PRELOAD, for glibc and musl
//	ld.so.preload   /etc/ld.so.preload, for glibc: an image's own LD_PRELOAD stays as it is
//	go              no library
//
// LD_PRELOAD is one path for both C libraries. glibc's dynamic linker puts the folder of its
// system's libraries in the place of $LIB; musl's takes $LIB for a name. So the library for glibc
// is in the container in each folder that distributions have, that for musl in one called $LIB, and
// no hook has to look at the image.
//
// # Concurrency
//
// A Spec does not change once it is made.
//
// # Limits
//
// An edit of CDI sets a variable, whatever it was: the device all replaces an image's LD_PRELOAD.
// A program of 32 bits does not load the library. Into a static one the agent puts another.
package cdi

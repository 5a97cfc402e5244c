/* Differences between C libraries: musl lacks macros for glibc's recent calls, has other argument
 * types, and defines the names with 64 as macros for the plain ones. */
#ifndef DS_LIBC_H
#define DS_LIBC_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

_Static_assert(sizeof(off_t) == 8, "off_t has 64 bits");

#ifdef __GLIBC__
typedef unsigned long ds_request; /* of ioctl */
typedef int ds_mmflags;           /* of recvmmsg and sendmmsg */
#else
typedef int ds_request;
typedef unsigned ds_mmflags;

#undef fcntl64
#undef lseek64
#undef mmap64
#undef preadv64
#undef pwritev64
#undef sendfile64

/* The headers of musl, or of some of its versions, lack these; the first two may be missing from
 * musl itself (real.c). */
struct epoll_event;
ssize_t preadv2(int, const struct iovec *, int, off_t, int);
ssize_t pwritev2(int, const struct iovec *, int, off_t, int);
int close_range(unsigned, unsigned, int);
int epoll_pwait2(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
#endif

/* asm-generic/socket.h; both names of SO_RCVTIMEO are one where time_t always had 64 bits. */
#ifndef SO_RCVTIMEO_OLD
#define SO_RCVTIMEO_OLD 20
#define SO_SNDTIMEO_OLD 21
#endif
#ifndef SO_RCVTIMEO_NEW
#define SO_RCVTIMEO_NEW 66
#define SO_SNDTIMEO_NEW 67
#endif

/* linux/fs.h */
#ifndef RWF_HIPRI
#define RWF_HIPRI 0x01
#define RWF_DSYNC 0x02
#define RWF_SYNC 0x04
#define RWF_NOWAIT 0x08
#define RWF_APPEND 0x10
#endif

/* asm-generic/mman-common.h */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#endif

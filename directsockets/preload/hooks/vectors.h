/* Checks of the arguments of calls that move bytes. What the kernel would refuse is passed to it,
 * to get its error. */
#ifndef DS_VECTORS_H
#define DS_VECTORS_H

#include "segment/segment.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <sys/uio.h>

/* Flags of preadv2 and pwritev2 that a socket accepts; only RWF_NOWAIT means something to it. */
enum { RWF_FINE = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND };

/* True if the n vectors themselves can be read. */
static inline bool iov_there(const struct iovec *iov, size_t n) { return n <= IOV_MAX && ds_readable(iov, n * sizeof *iov); }

/* The bytes of the vectors, at most what the kernel moves in one call. */
static inline size_t iov_total(const struct iovec *iov, size_t n)
{
	size_t t = 0;

	for (size_t i = 0; i < n; i++)
		t += iov[i].iov_len < DS_MAX_RW - t ? iov[i].iov_len : DS_MAX_RW - t;
	return t;
}

/* The bytes that recv and send check and move at most. */
static inline size_t capped(size_t n) { return n < DS_MAX_RW ? n : DS_MAX_RW; }

/* read and write check the whole range first. False and errno: EFAULT. */
static inline bool range_fine(const void *p, size_t n)
{
	if (__builtin_expect(n <= DS_MAX_RW || (n <= DS_USER_END && (uintptr_t)p <= DS_USER_END - n), 1))
		return true; /* ds_recv and ds_send check the range, if it is not too long */
	errno = EFAULT;
	return false;
}

/* True if a message of sendmsg or recvmsg and its vectors can be read. */
static inline bool msg_there(const struct msghdr *m)
{
	return ds_readable(m, sizeof *m) && m->msg_iovlen <= IOV_MAX && iov_there(m->msg_iov, m->msg_iovlen) &&
	       (!m->msg_name || (int)m->msg_namelen >= 0);
}

_Static_assert(offsetof(struct mmsghdr, msg_hdr) == 0, "msg_of");

/* Message i of sendmmsg or recvmmsg, not checked yet. */
static inline struct msghdr *msg_of(struct mmsghdr *v, unsigned i) { return (void *)((char *)v + i * sizeof *v); }

/* A message's address that is longer than any is cut to this. */
static inline socklen_t capped_name(socklen_t n)
{
	return n < sizeof(struct sockaddr_storage) ? n : (socklen_t)sizeof(struct sockaddr_storage);
}

/* True if name can be read as an address of len bytes, or is NULL. */
static inline bool name_there(const void *name, socklen_t len)
{
	return !name || (len <= sizeof(struct sockaddr_storage) && ds_readable(name, len));
}

#endif

/* Arguments of calls that move bytes, as the kernel judges them. What it would refuse is handed to it, to say why. */
#ifndef DS_VECTORS_H
#define DS_VECTORS_H

#include "segment/segment.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <sys/uio.h>

/* Flags of preadv2 and pwritev2 that a socket takes and that mean nothing to it, but RWF_NOWAIT. */
enum { RWF_FINE = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND };

/* Can the n vectors themselves be read? */
static inline bool iov_there(const struct iovec *iov, size_t n) { return n <= IOV_MAX && ds_readable(iov, n * sizeof *iov); }

/* Bytes of the vectors, of which the kernel moves so many at most. */
static inline size_t iov_total(const struct iovec *iov, size_t n)
{
	size_t t = 0;

	for (size_t i = 0; i < n; i++)
		t += iov[i].iov_len < DS_MAX_RW - t ? iov[i].iov_len : DS_MAX_RW - t;
	return t;
}

/* recv and send look at no more than they may move, */
static inline size_t capped(size_t n) { return n < DS_MAX_RW ? n : DS_MAX_RW; }

/* read and write at the whole range before: false: EFAULT. */
static inline bool range_fine(const void *p, size_t n)
{
	if (__builtin_expect(n <= DS_MAX_RW || (n <= DS_USER_END && (uintptr_t)p <= DS_USER_END - n), 1))
		return true; /* of what is not too long ds_recv and ds_send look at the range */
	errno = EFAULT;
	return false;
}

/* Is there a message of sendmsg, recvmsg, with its vectors? */
static inline bool msg_there(const struct msghdr *m)
{
	return ds_readable(m, sizeof *m) && m->msg_iovlen <= IOV_MAX && iov_there(m->msg_iov, m->msg_iovlen) &&
	       (!m->msg_name || (int)m->msg_namelen >= 0);
}

_Static_assert(offsetof(struct mmsghdr, msg_hdr) == 0, "msg_of");

/* Message number i of sendmmsg or recvmmsg, of which nothing is known yet. */
static inline struct msghdr *msg_of(struct mmsghdr *v, unsigned i) { return (void *)((char *)v + i * sizeof *v); }

/* A message's address that is longer than any is cut to this. */
static inline socklen_t capped_name(socklen_t n)
{
	return n < sizeof(struct sockaddr_storage) ? n : (socklen_t)sizeof(struct sockaddr_storage);
}

/* Is there an address of len bytes that a call may name? */
static inline bool name_there(const void *name, socklen_t len)
{
	return !name || (len <= sizeof(struct sockaddr_storage) && ds_readable(name, len));
}

#endif

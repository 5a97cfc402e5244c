/* Calls on UDP sockets. */
#ifndef DS_HOOKS_DGRAM_H
#define DS_HOOKS_DGRAM_H

#include "hooks/hooks.h"

/* fd is a UDP socket of ours. As the calls of these names; addr may be NULL. A send may return
 * DS_DG_ANEW: fd is another file's by now, nothing is sent, and the hook begins anew. Receives take
 * no more arguments than registers hold, so that a hook jumps to them: to return costs much after a
 * system call. */
ssize_t dg_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *addr, socklen_t len) DS_HIDDEN;
ssize_t dg_writev(int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t dg_sendmsg(int fd, const struct msghdr *m, int flags) DS_HIDDEN;
int dg_sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags) DS_HIDDEN;
ssize_t dg_recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *addr, socklen_t *len) DS_HIDDEN;
ssize_t dg_readv(int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t dg_recvmsg(int fd, struct msghdr *m, int flags) DS_HIDDEN;
int dg_recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout) DS_HIDDEN;

/* The call of a hook, if fd is a UDP socket of ours. */
#define DGRAM_CALL(fd, call, ...) \
	do { \
		if (__builtin_expect(word_dgram(fd_word(fd)) != NULL, 0)) \
			return call(fd, __VA_ARGS__); \
	} while (0)

/* The UDP socket whose word w is, if a send with these flags to addr (NULL: its peer) is the
 * kernel's at first sight. */
static inline __attribute__((always_inline)) struct ds_dgram *dg_plain(uintptr_t w, const struct sockaddr *addr, socklen_t len, int flags)
{
	struct ds_dgram *d = word_dgram(w);

	return d && !(flags & MSG_MORE) && ds_dg_plain(d, addr, len) ? d : NULL;
}
/* The same in a process of one thread, which need not count such a send. */
static inline __attribute__((always_inline)) bool dg_alone(uintptr_t w, const struct sockaddr *addr, socklen_t len, int flags)
{
	return dg_plain(w, addr, len, flags) && ds_one_thread() && __atomic_load_n(&ds_real_ready, __ATOMIC_ACQUIRE);
}

/* fd, if it is a UDP socket, goes by the kernel from now on. */
void dg_native(int fd, int why) DS_HIDDEN;
/* A program that this process or a child of vfork is about to execute has the UDP sockets that are
 * not closed on exec. */
void dg_inherited(void) DS_HIDDEN;

#endif

/* Calls on UDP sockets. */
#ifndef DS_HOOKS_DGRAM_H
#define DS_HOOKS_DGRAM_H

#include "hooks/hooks.h"

/* fd is a UDP socket of ours, whose word is w. As the calls of these names; addr may be NULL. */
ssize_t dg_sendto(int fd, uintptr_t w, const void *p, size_t n, int flags, const struct sockaddr *addr, socklen_t len) DS_HIDDEN;
ssize_t dg_writev(int fd, uintptr_t w, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t dg_sendmsg(int fd, uintptr_t w, const struct msghdr *m, int flags) DS_HIDDEN;
int dg_sendmmsg(int fd, uintptr_t w, struct mmsghdr *v, unsigned n, int flags) DS_HIDDEN;
ssize_t dg_recvfrom(int fd, uintptr_t w, void *p, size_t n, int flags, struct sockaddr *addr, socklen_t *len) DS_HIDDEN;
ssize_t dg_readv(int fd, uintptr_t w, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t dg_recvmsg(int fd, uintptr_t w, struct msghdr *m, int flags) DS_HIDDEN;
int dg_recvmmsg(int fd, uintptr_t w, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout) DS_HIDDEN;

/* The call of a hook, if fd is a UDP socket of ours. */
#define DGRAM_CALL(fd, call, ...) \
	do { \
		uintptr_t word_ = fd_word(fd); \
		if (__builtin_expect(word_dgram(word_) != NULL, 0)) \
			return call(fd, word_, __VA_ARGS__); \
	} while (0)

/* fd, if it is a UDP socket, goes by the kernel from now on. */
void dg_native(int fd, int why) DS_HIDDEN;
/* A program that this process or a child of vfork is about to execute has the UDP sockets that are
 * not closed on exec. */
void dg_inherited(void) DS_HIDDEN;

#endif

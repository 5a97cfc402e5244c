/* Which system calls may be this library's, for those that arrive as numbers. */
#include "hooks/hooks.h"

#if defined(__x86_64__) || defined(DS_FREE)
#include <sys/syscall.h>

#define WAYS \
	[SYS_read] = BY_DESCRIPTOR, [SYS_write] = BY_DESCRIPTOR, [SYS_readv] = BY_DESCRIPTOR, [SYS_writev] = BY_DESCRIPTOR, \
	[SYS_preadv2] = BY_DESCRIPTOR, [SYS_pwritev2] = BY_DESCRIPTOR, [SYS_recvfrom] = BY_DESCRIPTOR, [SYS_sendto] = BY_DESCRIPTOR, \
	[SYS_recvmsg] = BY_DESCRIPTOR, [SYS_sendmsg] = IF_ANY, [SYS_recvmmsg] = BY_DESCRIPTOR, [SYS_sendmmsg] = IF_ANY, \
	[SYS_sendfile] = BY_DESCRIPTOR, [SYS_splice] = IF_ANY, \
	[SYS_socket] = ALWAYS, [SYS_connect] = ALWAYS, [SYS_listen] = ALWAYS, [SYS_accept] = ALWAYS, [SYS_accept4] = ALWAYS, \
	[SYS_shutdown] = BY_DESCRIPTOR, [SYS_getsockopt] = BY_DESCRIPTOR, [SYS_setsockopt] = BY_DESCRIPTOR, \
	[SYS_close] = IF_ANY, [SYS_dup] = BY_DESCRIPTOR, [SYS_dup3] = IF_ANY, [SYS_fcntl] = BY_DESCRIPTOR, \
	[SYS_ioctl] = BY_DESCRIPTOR, [SYS_close_range] = IF_ANY, [SYS_pidfd_getfd] = IF_ANY, \
	[SYS_ppoll] = IF_ANY, [SYS_pselect6] = IF_ANY, [SYS_epoll_create1] = ALWAYS, [SYS_epoll_ctl] = BY_DESCRIPTOR, \
	[SYS_epoll_pwait] = BY_DESCRIPTOR, [SYS_epoll_pwait2] = BY_DESCRIPTOR, \
	[SYS_prctl] = ALWAYS, [SYS_seccomp] = ALWAYS, [SYS_io_submit] = IF_ANY, [SYS_io_uring_setup] = ALWAYS

/* Newer architectures have none of these. */
#ifdef SYS_poll
#define OLD_WAYS \
	[SYS_dup2] = IF_ANY, [SYS_poll] = IF_ANY, [SYS_select] = IF_ANY, [SYS_epoll_create] = ALWAYS, [SYS_epoll_wait] = BY_DESCRIPTOR,
#define OLD_OWN_WAYS [SYS_fork] = ALWAYS, [SYS_vfork] = ALWAYS,
#else
#define OLD_WAYS
#define OLD_OWN_WAYS
#endif

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

const uint8_t ds_ways[DS_WAYS] = {OLD_WAYS WAYS};

/* Those of a program's own instructions, which come by no name of the C library before. */
const uint8_t ds_own_ways[DS_WAYS] = {
	OLD_WAYS WAYS,
	OLD_OWN_WAYS [SYS_clone] = ALWAYS, [SYS_clone3] = ALWAYS,
	[SYS_chroot] = ALWAYS, [SYS_unshare] = ALWAYS,
	[SYS_execve] = IF_ANY, [SYS_execveat] = IF_ANY, [SYS_exit_group] = IF_ANY,
#ifdef DS_FREE
	[SYS_exit] = ALWAYS, [SYS_rt_sigaction] = ALWAYS,
	[SYS_mmap] = ALWAYS, [SYS_munmap] = IF_ANY, [SYS_mremap] = IF_ANY, [SYS_mprotect] = ALWAYS,
#endif
};
#endif

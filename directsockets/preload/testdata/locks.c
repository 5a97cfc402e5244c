/* A preload library before libexnds.so that takes a lock in each of its functions, as fakeroot does
 * in some. Whoever calls one inside another would hang; here the program ends. */
#include <dlfcn.h>

typedef long call(long a, long b, long c, long d, long e, long f);

static __thread int locked;

/* Calls the next function of this name. */
static long locking(const char *name, long a, long b, long c, long d, long e, long f)
{
	call *next = (call *)dlsym(RTLD_NEXT, name);

	if (locked++)
		__builtin_trap();
	long rc = next(a, b, c, d, e, f);
	locked--;
	return rc;
}

#define LOCKS(name) \
	extern long name(long a, long b, long c, long d, long e, long f); \
	long name(long a, long b, long c, long d, long e, long f) { return locking(#name, a, b, c, d, e, f); }

LOCKS(accept) LOCKS(accept4) LOCKS(access) LOCKS(close) LOCKS(connect) LOCKS(dup) LOCKS(dup2) LOCKS(epoll_ctl) LOCKS(epoll_wait)
LOCKS(eventfd) LOCKS(fstat) LOCKS(fstatfs) LOCKS(ftruncate) LOCKS(geteuid) LOCKS(getpeername) LOCKS(getpid) LOCKS(getrlimit)
LOCKS(getsockname) LOCKS(getsockopt) LOCKS(listen) LOCKS(lseek) LOCKS(lstat) LOCKS(madvise) LOCKS(memfd_create) LOCKS(mmap)
LOCKS(munmap) LOCKS(open) LOCKS(pipe2) LOCKS(poll) LOCKS(pread) LOCKS(pread64) LOCKS(read) LOCKS(readlink) LOCKS(recv)
LOCKS(recvmsg) LOCKS(select) LOCKS(send) LOCKS(sendmsg) LOCKS(setsockopt) LOCKS(shutdown) LOCKS(socket) LOCKS(socketpair)
LOCKS(stat) LOCKS(statfs) LOCKS(write) LOCKS(writev)

/* Ways around the interposed calls: standard I/O, which the C library does by calls of
 * its own, raw system calls, io_uring. */
#include "hooks/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define NEXT(name) \
	static __typeof__(name) *next_##name; \
	if (!next_##name) \
	next_##name = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* ---- standard I/O ------------------------------------------------------------- */

/* A stream on a TCP socket reads and writes by our calls. */
static ssize_t stream_read(void *cookie, char *p, size_t n)
{
	return read((int)(intptr_t)cookie, p, n);
}

static ssize_t stream_write(void *cookie, const char *p, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t rc = write((int)(intptr_t)cookie, p + done, n - done);
		if (rc < 0)
			return (ssize_t)done;
		done += (size_t)rc;
	}
	return (ssize_t)done;
}

static int stream_close(void *cookie)
{
	return close((int)(intptr_t)cookie);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
	static const cookie_io_functions_t io = {stream_read, stream_write, NULL, stream_close};

	if (fd_kind(fd) != FD_CONN || !mode || !strchr("rwa", mode[0]))
		return REAL(fdopen)(fd, mode);
	FILE *f = fopencookie((void *)(intptr_t)fd, mode, io);
	if (f) {
		f->_fileno = fd;
		if (strchr(mode, 'e'))
			REAL(fcntl)(fd, F_SETFD, FD_CLOEXEC);
	}
	return f;
}

/* A stream that was made before its descriptor became a TCP socket (by dup2, say). */
EXPORT int fclose(FILE *f)
{
	NEXT(fclose);
	int fd = f ? fileno(f) : -1;

	if (fd >= 0 && fd <= STDERR_FILENO && fd_word(fd) != 0) {
		fflush(f);
		fd_closing(fd);
	}
	return next_fclose(f);
}

static int print(int fd, const char *text, int n)
{
	for (int done = 0; done < n;) {
		ssize_t rc = write(fd, text + done, (size_t)(n - done));
		if (rc < 0)
			return -1;
		done += (int)rc;
	}
	return n;
}

EXPORT int vdprintf(int fd, const char *format, va_list ap)
{
	NEXT(vdprintf);
	char *text;

	if (fd_kind(fd) != FD_CONN)
		return next_vdprintf(fd, format, ap);
	int n = vasprintf(&text, format, ap);
	if (n < 0)
		return n;
	n = print(fd, text, n);
	free(text);
	return n;
}

EXPORT int dprintf(int fd, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	int n = vdprintf(fd, format, ap);
	va_end(ap);
	return n;
}

extern int __vdprintf_chk(int fd, int flag, const char *format, va_list ap) EXPORT;
extern int __dprintf_chk(int fd, int flag, const char *format, ...) EXPORT;

int __vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	NEXT(__vdprintf_chk);

	if (fd_kind(fd) != FD_CONN)
		return next___vdprintf_chk(fd, flag, format, ap);
	return vdprintf(fd, format, ap);
}

int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	int n = __vdprintf_chk(fd, flag, format, ap);
	va_end(ap);
	return n;
}

/* ---- io_uring: what it does cannot be seen ---------------------------------------- */

extern int io_uring_setup(unsigned entries, void *params) EXPORT;
extern int io_uring_queue_init(unsigned entries, void *ring, unsigned flags) EXPORT;
extern int io_uring_queue_init_params(unsigned entries, void *ring, void *params) EXPORT;
extern int io_uring_queue_init_mem(unsigned entries, void *ring, void *params, void *buf, size_t size) EXPORT;

int io_uring_setup(unsigned entries, void *params)
{
	(void)entries, (void)params;
	return -ENOSYS;
}

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
	(void)entries, (void)ring, (void)flags;
	return -ENOSYS;
}

int io_uring_queue_init_params(unsigned entries, void *ring, void *params)
{
	(void)entries, (void)ring, (void)params;
	return -ENOSYS;
}

int io_uring_queue_init_mem(unsigned entries, void *ring, void *params, void *buf, size_t size)
{
	(void)entries, (void)ring, (void)params, (void)buf, (void)size;
	return -ENOSYS;
}

/* ---- longjmp out of a signal handler that has interrupted a call ----------------------- */

/* The stack pointer that env will restore. */
static const char *jump_target(const struct __jmp_buf_tag *env)
{
#if defined(__x86_64__)
	uintptr_t guard, sp = (uintptr_t)env->__jmpbuf[6];

	__asm__("mov %%fs:0x30, %0" : "=r"(guard));
	return (const char *)((sp >> 17 | sp << 47) ^ guard);
#else
	(void)env;
	return __builtin_frame_address(0);
#endif
}

typedef void jump_fn(jmp_buf env, int value);

#define JUMP(name) \
	extern void name(jmp_buf env, int value) EXPORT __attribute__((noreturn)); \
	void name(jmp_buf env, int value) \
	{ \
		static jump_fn *next; \
		if (!next) \
			next = (jump_fn *)dlsym(RTLD_NEXT, #name); \
		calls_unwind(jump_target(env)); \
		next(env, value); \
		__builtin_unreachable(); \
	}

JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
JUMP(__longjmp_chk)

/* ---- syscall() ---------------------------------------------------------------------- */

typedef struct {
	const sigset_t *set;
	size_t size;
} pselect_mask;

#undef syscall
EXPORT long syscall(long nr, ...)
{
	va_list ap;
	long a[6], pid;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (fork_call(nr, a, &pid))
		return pid;
	int fd = (int)a[0];
#define P(i) ((void *)a[i])
	switch (nr) {
	case SYS_read: return read(fd, P(1), (size_t)a[2]);
	case SYS_write: return write(fd, P(1), (size_t)a[2]);
	case SYS_readv: return readv(fd, P(1), (int)a[2]);
	case SYS_writev: return writev(fd, P(1), (int)a[2]);
	case SYS_recvfrom: return recvfrom(fd, P(1), (size_t)a[2], (int)a[3], P(4), P(5));
	case SYS_sendto: return sendto(fd, P(1), (size_t)a[2], (int)a[3], P(4), (socklen_t)a[5]);
	case SYS_recvmsg: return recvmsg(fd, P(1), (int)a[2]);
	case SYS_sendmsg: return sendmsg(fd, P(1), (int)a[2]);
	case SYS_recvmmsg: return recvmmsg(fd, P(1), (unsigned)a[2], (int)a[3], P(4));
	case SYS_sendmmsg: return sendmmsg(fd, P(1), (unsigned)a[2], (int)a[3]);
	case SYS_sendfile: return sendfile64(fd, (int)a[1], P(2), (size_t)a[3]);
	case SYS_splice: return splice(fd, P(1), (int)a[2], P(3), (size_t)a[4], (unsigned)a[5]);
	case SYS_socket: return socket(fd, (int)a[1], (int)a[2]);
	case SYS_connect: return connect(fd, P(1), (socklen_t)a[2]);
	case SYS_listen: return listen(fd, (int)a[1]);
	case SYS_accept: return accept(fd, P(1), P(2));
	case SYS_accept4: return accept4(fd, P(1), P(2), (int)a[3]);
	case SYS_shutdown: return shutdown(fd, (int)a[1]);
	case SYS_getsockopt: return getsockopt(fd, (int)a[1], (int)a[2], P(3), P(4));
	case SYS_setsockopt: return setsockopt(fd, (int)a[1], (int)a[2], P(3), (socklen_t)a[4]);
	case SYS_close: return close(fd);
	case SYS_dup: return dup(fd);
#ifdef SYS_dup2
	case SYS_dup2: return dup2(fd, (int)a[1]);
	case SYS_poll: return poll(P(0), (nfds_t)a[1], (int)a[2]);
	case SYS_select: return select(fd, P(1), P(2), P(3), P(4));
	case SYS_epoll_create: return epoll_create(fd);
	case SYS_epoll_wait: return epoll_wait(fd, P(1), (int)a[2], (int)a[3]);
#endif
	case SYS_dup3: return dup3(fd, (int)a[1], (int)a[2]);
	case SYS_fcntl: return fcntl64(fd, (int)a[1], P(2));
	case SYS_ioctl: return ioctl(fd, (unsigned long)a[1], P(2));
	case SYS_close_range:
		return close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
	case SYS_ppoll: return ppoll(P(0), (nfds_t)a[1], P(2), P(3));
	case SYS_pselect6: {
		const pselect_mask *m = P(5);
		return pselect(fd, P(1), P(2), P(3), P(4), m ? m->set : NULL);
	}
	case SYS_epoll_create1: return epoll_create1(fd);
	case SYS_epoll_ctl: return epoll_ctl(fd, (int)a[1], (int)a[2], P(3));
	case SYS_epoll_pwait: return epoll_pwait(fd, P(1), (int)a[2], (int)a[3], P(4));
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2: return epoll_pwait2(fd, P(1), (int)a[2], P(3), P(4));
#endif
	case SYS_execve: return execve(P(0), P(1), P(2));
	case SYS_execveat: inherit_demote(); break;
#ifdef SYS_io_uring_setup
	case SYS_io_uring_setup:
		errno = ENOSYS;
		return -1;
#endif
	}
	return REAL(syscall)(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

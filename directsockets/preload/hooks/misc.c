/* Ways around the interposed calls: standard I/O, for which the C library uses internal calls;
 * asynchronous I/O; and io_uring. Raw system calls are in syscall.c. */
#include "hooks/dgram.h"
#include "hooks/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define NEXT(name) \
	static __typeof__(name) *next_##name; \
	if (!next_##name) \
	next_##name = (__typeof__(name) *)ds_next(#name)

/* ---- standard I/O ------------------------------------------------------------- */

#ifdef __GLIBC__
/* A stream on a TCP socket reads and writes by our calls. */
static ssize_t stream_read(void *cookie, char *p, size_t n)
{
	return read((int)(intptr_t)cookie, p, n);
}

/* fopencookie's write: all of it, or as much as went. No lock. */
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

/* fopencookie's close. No lock. */
static int stream_close(void *cookie)
{
	return close((int)(intptr_t)cookie);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
	static const cookie_io_functions_t io = {stream_read, stream_write, NULL, stream_close};

	dg_native(fd, DS_WHY_UNSUPPORTED_CALL);
	if (fd_kind(fd) != FD_CONN || !mode || !strchr("rwa", mode[0]))
		return REAL(fdopen, fd, mode);
	FILE *f = fopencookie((void *)(intptr_t)fd, mode, io);
	if (f) {
		f->_fileno = fd;
		if (strchr(mode, 'e'))
			REAL(fcntl, fd, F_SETFD, FD_CLOEXEC);
	}
	return f;
}
#else
/* The number of a stream cannot be set: one on a direct socket is the kernel's. */
EXPORT FILE *fdopen(int fd, const char *mode)
{
	dg_native(fd, DS_WHY_UNSUPPORTED_CALL);
	if (fd_kind(fd) == FD_CONN) {
		CALL_ANY(k, fd);
		if (k.c)
			ds_fall_back(k.c->life.s, fd);
	}
	return REAL(fdopen, fd, mode);
}
#endif

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

/* Writes n bytes of text; n, or -1 and errno. No lock. */
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

	dg_native(fd, DS_WHY_UNSUPPORTED_CALL);
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

	dg_native(fd, DS_WHY_UNSUPPORTED_CALL);
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

#ifdef __GLIBC__
/* A namespace of the dynamic linker has a C library of its own, whose calls do not come here: all
 * sockets are the kernel's from now on. The last call is a jump: the linker looks where its caller
 * says, which is the program. */
EXPORT __attribute__((optimize("optimize-sibling-calls"))) void *dlmopen(Lmid_t in, const char *path, int mode)
{
	NEXT(dlmopen);

	if (in != LM_ID_BASE)
		fd_seal();
	return next_dlmopen(in, path, mode);
}
#endif

/* ---- asynchronous I/O: the kernel, or a thread of the C library, reads and writes later --------
 * */

/* fd, if it is a socket of ours, goes by the kernel from now on. */
static void aio_native(int fd)
{
	struct conn *c = fd_kind(fd) == FD_CONN ? conn_get(fd) : NULL;

	dg_native(fd, DS_WHY_UNSUPPORTED_CALL);
	if (!c)
		return;
	conn_demote(c, fd);
	conn_put(c);
}

void aio_submitted(long n, void *const list[])
{
	enum { MOST = 1 << 16 };

	if (n <= 0 || n > MOST || !ds_readable(list, (size_t)n * sizeof *list))
		return;
	for (long i = 0; i < n; i++) {
		const struct iocb *cb = list[i];

		if (!ds_readable(cb, sizeof *cb))
			return;
		aio_native((int)cb->aio_fildes);
	}
}

/* libaio's, which makes the system call by itself and returns its error. */
extern int io_submit(void *context, long n, void *list[]) EXPORT;
int io_submit(void *context, long n, void *list[])
{
	int saved = errno;

	aio_submitted(n, list);
	long rc = ds_syscall(SYS_io_submit, context, n, list);
	int err = errno;
	errno = saved;
	return rc < 0 ? -err : (int)rc;
}

/* The C library's threads read and write by names of its own. A struct aiocb begins with its
 * descriptor; the names with 64 are for the same struct. */
static void aio_begins(const int *cb)
{
	if (ds_readable(cb, sizeof *cb))
		aio_native(*cb);
}

#define AIO(name) \
	extern int name(int *cb) EXPORT; \
	int name(int *cb) \
	{ \
		NEXT(name); \
		aio_begins(cb); \
		return next_##name(cb); \
	}
AIO(aio_read)
AIO(aio_write)
ALIAS(aio_read64, aio_read);
ALIAS(aio_write64, aio_write);

extern int lio_listio(int mode, int *const list[], int n, void *event) EXPORT;
int lio_listio(int mode, int *const list[], int n, void *event)
{
	NEXT(lio_listio);

	for (int i = 0; i < n && ds_readable(&list[i], sizeof *list); i++)
		if (list[i])
			aio_begins(list[i]);
	return next_lio_listio(mode, list, n, event);
}
ALIAS(lio_listio64, lio_listio);

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

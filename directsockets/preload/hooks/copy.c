/* Calls that copy between descriptors: sendfile, splice. The direct path has no pages to move, so
 * bytes are copied: from the ring into a pipe, or through a buffer. None is taken from the source
 * before the destination has it.
 *
 *   ring ─▶ pipe, what it takes ─▶ so much is taken from the ring
 *   socket ─peek─▶ buffer ─▶ pipe, where the socket has other bytes
 *   pipe ─tee─▶ own pipe ─▶ buffer ─▶ socket, what it takes ─▶ so much is taken from the pipe
 *
 * O_NONBLOCK or SPLICE_F_NONBLOCK decides whether a pipe waits, O_NONBLOCK alone whether a socket
 * does.
 */
#include "hooks/dgram.h"
#include "hooks/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

enum { CHUNK = 64 << 10, FLAGS = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT };

/* On the stack: a buffer for each thread would stay with every thread that ever copied. */
struct buffer {
	char bytes[CHUNK];
};

/* ---- a pipe --------------------------------------------------------------------- */

/* Is fd an end of a pipe that is open for mode, O_RDONLY or O_WRONLY? */
static bool is_pipe(int fd, int mode)
{
	int saved = errno, flags = REAL(fcntl, fd, F_GETFL), access = flags & O_ACCMODE;
	bool yes = flags >= 0 && (access == mode || access == O_RDWR) && REAL(fcntl, fd, F_GETPIPE_SZ) > 0;

	errno = saved;
	return yes;
}

/* O_NONBLOCK of a pipe. No lock. */
static bool pipe_nonblock(int fd) { return REAL(fcntl, fd, F_GETFL) & O_NONBLOCK; }

/* Is there room in a pipe (POLLOUT), or something to read or its end (POLLIN)? wait: waits for it.
 * False and errno: EAGAIN, EINTR, EPIPE. */
static bool pipe_ready(int fd, short event, bool wait)
{
	struct pollfd p = {fd, event, 0};
	int rc = REAL(poll, &p, 1, wait ? -1 : 0);

	if (rc == 0)
		errno = EAGAIN;
	if (rc > 0 && event == POLLOUT && (p.revents & POLLERR)) { /* nobody reads it */
		raise(SIGPIPE);
		errno = EPIPE;
		return false;
	}
	return rc > 0;
}

/* A pipe for one call. EINVAL if there is none: then programs fall back to read and write. */
static bool own_pipe(int ends[2])
{
	if (kernel_pipe(ends, O_CLOEXEC | O_NONBLOCK) == 0)
		return true;
	errno = EINVAL;
	return false;
}

/* Closes both ends of a pipe; errno stays. No lock. */
static void own_close(int ends[2])
{
	int saved = errno;

	REAL(close, ends[0]);
	REAL(close, ends[1]);
	errno = saved;
}

/* The pipe that a splice fills. */
struct filled {
	int fd;
	bool nonblock; /* its O_NONBLOCK */
};

/* Puts what there is room for into a struct filled *, without waiting: the number of bytes, or -1
 * and errno. No cancellation point, since ds_recv_by has a lock. */
static ssize_t pipe_put(void *pipe, const struct iovec *v, int n)
{
	const struct filled *to = pipe;
	ssize_t put;
	int ends[2];

	if (to->nonblock)
		return ds_syscall(SYS_writev, to->fd, v, n);
	put = ds_syscall(SYS_pwritev2, to->fd, v, n, -1L, -1L, RWF_NOWAIT);
	if (put >= 0 || errno != EOPNOTSUPP)
		return put;
	/* A pipe that the kernel's splice has used no longer supports RWF_NOWAIT: splice into it
	 * again. */
	if (!own_pipe(ends))
		return -1;
	put = ds_syscall(SYS_writev, ends[1], v, n);
	if (put > 0)
		put = ds_syscall(SYS_splice, ends[0], NULL, to->fd, NULL, (size_t)put, SPLICE_F_NONBLOCK);
	own_close(ends);
	return put;
}

/* ---- socket to pipe -------------------------------------------------------------- */

/* As sock_to_pipe, but of bytes that are not in a segment, through a buffer. *in stays a descriptor
 * of the socket. */
static ssize_t buffered(struct call *k, int *in, struct filled *to, size_t n, int flags)
{
	struct buffer b;
	struct iovec v = {b.bytes, n < CHUNK ? n : CHUNK};
	ssize_t have = ds_recv(k->c->life.s, *in, &v, 1, MSG_PEEK | flags);

	if (have <= 0)
		return have;
	v.iov_len = (size_t)have;
	ssize_t put = pipe_put(to, &v, 1);
	*in = conn_still(k->c, *in);
	if (put > 0) {
		v.iov_len = (size_t)put;
		ds_recv(k->c->life.s, *in, &v, 1, MSG_WAITALL | MSG_TRUNC);
	}
	return put;
}

/* splice from the socket in, of call k, to the pipe out: as splice. No lock. */
static ssize_t sock_to_pipe(struct call *k, int in, int out, size_t n, unsigned flags)
{
	struct filled to = {out, pipe_nonblock(out)};
	bool wait = !(flags & SPLICE_F_NONBLOCK) && !to.nonblock, came = false;
	size_t moved = 0;
	char byte;

	while (moved < n) {
		ssize_t put = ds_recv_by(k->c->life.s, in, n - moved, pipe_put, &to);
		if (put <= 0 && errno != EAGAIN)
			return moved ? (ssize_t)moved : put;
		/* The kernel, too, looks for room before it waits for bytes. */
		if (put <= 0 && !pipe_ready(out, POLLOUT, wait && !moved))
			break;
		if (put <= 0 && !moved && !came && (ds_direct(k->c->life.s) & 2)) {
			ssize_t have = ds_recv(k->c->life.s, in, &(struct iovec){&byte, 1}, 1, MSG_PEEK);
			in = conn_still(k->c, in);
			came = true;
			if (have <= 0)
				return have;
			continue;
		}
		if (put <= 0)
			put = buffered(k, &in, &to, n - moved, moved ? MSG_DONTWAIT : 0);
		came = false;
		if (put > 0)
			moved += (size_t)put;
		else if (moved || put == 0 || errno != EAGAIN || !wait)
			return moved ? (ssize_t)moved : put;
	}
	return moved ? (ssize_t)moved : -1;
}

/* ---- pipe to socket -------------------------------------------------------------- */

/* Sends what a pipe has, n bytes at most, in one send; what was sent is taken from it. 0: the pipe
 * is at its end. *all: the socket took all that was there. */
static ssize_t pipe_send(struct call *k, int in, int out, size_t n, bool *all)
{
	struct buffer b;
	int own[2];

	*all = false;
	if (!own_pipe(own))
		return -1;
	ssize_t sent = REAL(tee, in, own[1], n < CHUNK ? n : CHUNK, SPLICE_F_NONBLOCK);
	if (sent > 0)
		sent = REAL(read, own[0], b.bytes, (size_t)sent);
	if (sent > 0) {
		ssize_t have = sent;
		sent = ds_send(k->c->life.s, out, &(struct iovec){b.bytes, (size_t)have}, 1, 0);
		*all = sent == have;
	}
	int saved = errno;
	for (ssize_t taken = 0, got; taken < sent; taken += got) {
		got = REAL(splice, in, NULL, own[1], NULL, (size_t)(sent - taken), SPLICE_F_NONBLOCK);
		if (got <= 0)
			break; /* another reader was faster */
	}
	errno = saved;
	own_close(own);
	return sent;
}

/* splice from the pipe in to the socket out, of call k: as splice. No lock. */
static ssize_t pipe_to_sock(struct call *k, int in, int out, size_t n, unsigned flags)
{
	bool wait = !(flags & SPLICE_F_NONBLOCK) && !pipe_nonblock(in), all = true;
	size_t sent = 0;
	ssize_t rc = -1;

	while (all && sent < n && pipe_ready(in, POLLIN, wait && !sent)) {
		rc = pipe_send(k, in, out, n - sent, &all);
		out = conn_still(k->c, out);
		if (rc <= 0)
			break;
		sent += (size_t)rc;
	}
	if (!all)
		ep_blocked(k->c);
	return sent ? (ssize_t)sent : rc;
}

/* ---- file to socket -------------------------------------------------------------- */

/* sendfile from pos of the file in to the socket fd, of call k: as sendfile. No lock. */
static ssize_t file_to_sock(struct call *k, int fd, int in, off64_t pos, size_t n)
{
	struct buffer b;
	size_t done = 0;

	while (done < n) {
		size_t want = n - done < CHUNK ? n - done : CHUNK;
		ssize_t have = kernel_pread(in, b.bytes, want, pos + (off64_t)done);
		if (have < 0 && done == 0) {
			errno = errno == EISDIR ? EINVAL : errno;
			return -1;
		}
		if (have <= 0)
			break;
		ssize_t rc = ds_send(k->c->life.s, fd, &(struct iovec){b.bytes, (size_t)have}, 1, 0);
		fd = conn_still(k->c, fd);
		if (rc < have)
			ep_blocked(k->c);
		if (rc < 0 && done == 0)
			return -1;
		if (rc > 0)
			done += (size_t)rc;
		if (rc < have)
			break;
	}
	return (ssize_t)done;
}

/* As await_data, before the kernel moves what comes to the pipe out. It looks first whether there
 * is room. */
static bool await_splice(struct call *k, int *in, int out, bool *waited)
{
	struct pollfd p = {out, POLLOUT, 0};
	int saved = errno;
	bool room = REAL(poll, &p, 1, 0) > 0 && !(p.revents & POLLERR);

	errno = saved;
	*waited = false;
	return !room || await_data(k, in, waited);
}

/* May the call k on fd go to the kernel? True while everything is on the shadow; then it stays so
 * until ds_use_end(use), and *fd is a descriptor of it; of a call that waited, until
 * ds_by_number_end(by). */
static bool kernel_begin(struct call *k, int *fd, bool waited, struct ds_use *use, struct ds_by_number *by)
{
	ds_tick(k->c->life.s, *fd);
	ds_use_begin(use, k->c->life.s); /* only now the answer stays true */
	if (ds_bell(k->c->life.s) < 0 && ds_on_shadow_rx(k->c->life.s) && ds_on_shadow_tx(k->c->life.s)) {
		if (waited)
			ds_by_number_begin(by, &k->c->life.numbered, true);
		*fd = conn_still(k->c, *fd);
		return true;
	}
	ds_use_end(use);
	return false;
}

EXPORT ssize_t sendfile(int out, int in, off_t *off, size_t n)
{
	PASS(fd_word(in) | fd_word(out), sendfile, out, in, off, n);
	if (word_dgram(fd_word(out)))
		dg_native(out, DS_WHY_UNSUPPORTED_CALL);
	CALL_WAITING(from, in, true);
	CALL_SEND(to, out, n, 0);
	struct call *k = from.c ? &from : &to;
	off_t pos = 0;
	ssize_t rc;

	/* The kernel gets what it refuses, and what reads neither a file nor a device. */
	if (!k->c || (from.c && to.c) || n == 0 || (ssize_t)n < 0 || (off && !ds_readable(off, sizeof *off)) ||
	    (from.c && (off || !is_pipe(out, O_WRONLY))))
		return KERNEL_SENDS(to, out, REAL(sendfile, out, in, off, n), sendfile(out, in, off, n));
	if (to.c && ((REAL(fcntl, in, F_GETFL) & O_ACCMODE) == O_WRONLY || (pos = kernel_lseek(in, 0, SEEK_CUR)) < 0))
		return KERNEL_SENDS(to, out, REAL(sendfile, out, in, off, n), -1);
	bool waited = false;
	if (from.c && !await_splice(k, &in, out, &waited))
		return -1;
	DS_USE(use);
	DS_BY_NUMBER(brief);
	if (kernel_begin(k, from.c ? &in : &out, waited, &use, &brief)) {
		rc = KERNEL_SENDS(to, out, REAL(sendfile, out, in, off, n), -1);
		if (rc > 0)
			ds_moved(k->c->life.s, to.c ? (size_t)rc : 0, to.c ? 0 : (size_t)rc);
		return rc;
	}
	n = n < DS_MAX_RW ? n : DS_MAX_RW;
	if (from.c)
		return sock_to_pipe(k, in, out, n, 0);
	rc = file_to_sock(k, out, in, off ? *off : pos, n);
	if (!off && rc > 0)
		kernel_lseek(in, pos + (off_t)rc, SEEK_SET);
	if (off && !ds_writable(off, sizeof *off)) {
		errno = EFAULT;
		return -1;
	}
	if (off && rc > 0)
		*off += rc;
	return rc;
}
ALIAS(sendfile64, sendfile);

EXPORT ssize_t splice(int in, off64_t *inoff, int out, off64_t *outoff, size_t n, unsigned flags)
{
	dg_native(in, DS_WHY_UNSUPPORTED_CALL);
	dg_native(out, DS_WHY_UNSUPPORTED_CALL);
	CALL_WAITING(from, in, true);
	CALL_WAITING(to, out, true);
	struct call *k = from.c ? &from : &to;

	/* A socket and a pipe; the kernel refuses all else. */
	if (!k->c || (from.c && to.c) || inoff || outoff || n == 0 || (flags & ~FLAGS) ||
	    (from.c ? !is_pipe(out, O_WRONLY) : !is_pipe(in, O_RDONLY)))
		return KERNEL_SENDS(to, out, REAL(splice, in, inoff, out, outoff, n, flags), splice(in, inoff, out, outoff, n, flags));
	bool waited = false;
	if (from.c && !await_splice(k, &in, out, &waited))
		return -1;
	DS_USE(use);
	DS_BY_NUMBER(brief);
	if (kernel_begin(k, from.c ? &in : &out, waited, &use, &brief)) {
		ssize_t rc = KERNEL_SENDS(to, out, REAL(splice, in, NULL, out, NULL, n, flags), -1);
		if (rc > 0)
			ds_moved(k->c->life.s, from.c ? 0 : (size_t)rc, from.c ? (size_t)rc : 0);
		return rc;
	}
	n = n < DS_MAX_RW ? n : DS_MAX_RW;
	return from.c ? sock_to_pipe(k, in, out, n, flags) : pipe_to_sock(k, in, out, n, flags);
}

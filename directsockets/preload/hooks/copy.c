/* Calls that copy between descriptors: sendfile, splice. The direct path has no
 * pages to give away; bytes go through a buffer. */
#include "hooks/hooks.h"

#include <errno.h>
#include <fcntl.h>

enum { CHUNK = 64 << 10 };

/* A buffer by thread would stay for every thread that ever copied. */
struct buffer {
	char bytes[CHUNK];
};

static ssize_t file_to_sock(struct call *k, int fd, int in, off64_t *off, size_t n)
{
	struct buffer b;
	off64_t pos = off ? *off : lseek64(in, 0, SEEK_CUR);
	bool seekable = pos >= 0;
	size_t done = 0;

	if (!seekable && off) {
		errno = EINVAL;
		return -1;
	}
	while (done < n) {
		size_t want = n - done < CHUNK ? n - done : CHUNK;
		ssize_t have = seekable ? pread64(in, b.bytes, want, pos + (off64_t)done) : -1;
		if (!seekable) { /* a pipe: nothing is taken that cannot be sent */
			int room = fcntl(fd, F_GETFL);
			if (done > 0 || (room & O_NONBLOCK))
				break;
			have = REAL(read)(in, b.bytes, want);
		}
		if (have < 0 && done == 0)
			return -1;
		if (have <= 0)
			break;
		size_t sent = 0;
		ssize_t rc = 0;
		do {
			rc = ds_send(k->c->s, fd, &(struct iovec){b.bytes + sent, (size_t)have - sent}, 1, 0);
			if (rc > 0)
				sent += (size_t)rc;
		} while (rc > 0 && sent < (size_t)have && !seekable);
		done += sent;
		if (rc < 0 && done == 0) {
			__atomic_fetch_add(&k->c->blocked, 1, __ATOMIC_RELAXED);
			return -1;
		}
		if (rc < 0 || sent < (size_t)have) {
			__atomic_fetch_add(&k->c->blocked, 1, __ATOMIC_RELAXED);
			break;
		}
	}
	if (off)
		*off = pos + (off64_t)done;
	else if (seekable)
		lseek64(in, pos + (off64_t)done, SEEK_SET);
	return (ssize_t)done;
}

EXPORT ssize_t sendfile64(int out, int in, off64_t *off, size_t n)
{
	CALL(k, out);
	if (!k.c || n == 0)
		return REAL(sendfile64)(out, in, off, n);
	ds_tick(k.c->s, out);
	/* A short check of what the kernel would refuse. */
	int flags = fcntl(in, F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) {
		errno = EBADF;
		return -1;
	}
	ds_wait_begin(k.c->s); /* only now the answer stays true */
	if (ds_on_shadow_tx(k.c->s) && ds_bell(k.c->s) < 0) {
		ssize_t rc = REAL(sendfile64)(out, in, off, n);
		ds_wait_end(k.c->s);
		if (rc > 0)
			ds_moved(k.c->s, (size_t)rc, 0);
		return rc;
	}
	ds_wait_end(k.c->s);
	return file_to_sock(&k, out, in, off, n > 0x7ffff000 ? 0x7ffff000 : n);
}
ALIAS(sendfile, sendfile64);

/* Socket to pipe: what the pipe takes is peeked at, put into it, then taken. */
static ssize_t sock_to_pipe(struct call *k, int in, int out, size_t n, unsigned flags)
{
	struct buffer b;

	for (;;) {
		ssize_t have = ds_recv(k->c->s, in, &(struct iovec){b.bytes, n < CHUNK ? n : CHUNK}, 1,
				       MSG_PEEK); /* SPLICE_F_NONBLOCK is about the pipe */
		if (have <= 0)
			return have;
		ssize_t put = REAL(pwritev2)(out, &(struct iovec){b.bytes, (size_t)have}, 1, -1, RWF_NOWAIT);
		if (put > 0)
			return ds_recv(k->c->s, in, &(struct iovec){b.bytes, (size_t)put}, 1, MSG_WAITALL);
		if (put == 0 || errno != EAGAIN || (flags & SPLICE_F_NONBLOCK) || (fcntl(out, F_GETFL) & O_NONBLOCK))
			return put;
		struct pollfd p = {out, POLLOUT, 0};
		if (REAL(poll)(&p, 1, -1) < 0)
			return -1;
	}
}

/* Pipe to socket: a blocking socket takes all that was read. */
static ssize_t pipe_to_sock(struct call *k, int in, int out, size_t n, unsigned flags)
{
	struct buffer b;
	struct pollfd room = {out, POLLOUT, 0}, some = {in, POLLIN, 0};
	size_t sent = 0;

	if ((flags & SPLICE_F_NONBLOCK) && REAL(poll)(&some, 1, 0) == 0) {
		errno = EAGAIN;
		return -1;
	}
	bool nonblocking = fcntl(out, F_GETFL) & O_NONBLOCK;
	if (nonblocking && wait_poll(&room, 1, &(struct timespec){0, 0}, NULL) == 0) {
		errno = EAGAIN;
		return -1;
	}
	/* A non-blocking socket that has room takes at least so much (SPEC.md 4.1); if not,
	 * the rest waits for room here, as it cannot go back into the pipe. */
	size_t want = nonblocking ? 4096 : CHUNK;
	ssize_t have = REAL(read)(in, b.bytes, n < want ? n : want);
	if (have <= 0)
		return have;
	while (sent < (size_t)have) {
		ssize_t rc = ds_send(k->c->s, out, &(struct iovec){b.bytes + sent, (size_t)have - sent}, 1, 0);
		if (rc > 0)
			sent += (size_t)rc;
		else if (errno == EAGAIN)
			wait_poll(&room, 1, NULL, NULL);
		else if (errno != EINTR)
			return sent > 0 ? (ssize_t)sent : -1;
	}
	return (ssize_t)sent;
}

EXPORT ssize_t splice(int in, off64_t *inoff, int out, off64_t *outoff, size_t n, unsigned flags)
{
	CALL(from, in);
	CALL(to, out);
	if ((!from.c && !to.c) || inoff || outoff || n == 0 || (from.c && to.c))
		return REAL(splice)(in, inoff, out, outoff, n, flags);
	struct call *k = from.c ? &from : &to;
	int fd = from.c ? in : out;
	ds_tick(k->c->s, fd);
	ds_wait_begin(k->c->s);
	if (ds_bell(k->c->s) < 0 && ds_on_shadow_rx(k->c->s) && ds_on_shadow_tx(k->c->s)) {
		ssize_t rc = REAL(splice)(in, NULL, out, NULL, n, flags);
		ds_wait_end(k->c->s);
		if (rc > 0)
			ds_moved(k->c->s, from.c ? 0 : (size_t)rc, from.c ? (size_t)rc : 0);
		return rc;
	}
	ds_wait_end(k->c->s);
	return from.c ? sock_to_pipe(k, in, out, n, flags) : pipe_to_sock(k, in, out, n, flags);
}

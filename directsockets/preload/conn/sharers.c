/* A connection that processes share after fork, before it is direct. If one of them alone uses it,
 * as a server's child does while its parent waits for it, it becomes direct for that one; the
 * others get the segment when they first use the connection, if ever.
 *
 *   fork     each process has a pair of sockets for the connection, and has it UNUSED: it has not used it
 *   use      UNUSED ─▶ USED, and counted in h->using; or, if one has TAKEN it, UNUSED ─▶ NONE, with the
 *            segment and the bell, which wait in the pair: reading them leaves them there
 *   take     the one that is USED, if no other is, puts them there and sets TAKEN
 *
 * So a process is either counted in time, and nothing becomes direct, or learns of it. */
#include "conn/broker.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>

enum { TAKEN = 1u << 31 }; /* struct ds_shared's using, beside the count */

/* Reads a note, which is a byte and two descriptors: as recvmsg with these flags. Returns the
 * number of its descriptors, or -1: there is no note. */
static int note_read(int from, int flags, int fds[2])
{
	char byte;
	int n = 2;
	long got = rpc_receive(from, &byte, 1, fds, &n, flags | MSG_DONTWAIT);

	return got > 0 || got == -EPROTO ? n : -1;
}

/* Sends a note with two descriptors, which stay the caller's. It does not wait. False: it was not
 * sent. */
static bool note_send(int to, const int fds[2]) { return rpc_send(to, "", 1, fds, 2, MSG_DONTWAIT) == 1; }

/* Takes back what was put into the pair for nothing: there it would keep the bell open. */
static void empty(struct ds_sock *s)
{
	int fds[2], n;

	while ((n = note_read(s->pair[0], 0, fds)) >= 0)
		rpc_close(fds, n);
}

void ds_sharer_drop(struct ds_sock *s)
{
	if (s->sharer == SHARER_USED)
		empty(s);
}

/* Closes the pair of s, if it has one. */
static void end(struct ds_sock *s)
{
	if (s->sharer == SHARER_NONE)
		return;
	DS_SET(s->sharer, SHARER_NONE);
	ds_fd_close(s->pair[0]);
	ds_fd_close(s->pair[1]);
}

void ds_sharer_pair(struct ds_sock *s)
{
	if (s->sharer == SHARER_USED) {
		__atomic_fetch_sub(&s->sh->using, 1, __ATOMIC_ACQ_REL);
		DS_SET(s->sharer, SHARER_UNUSED);
	} else if (s->sharer == SHARER_NONE && ds_single(s)) {
		int fds[2], saved = errno;

		if (kernel_socketpair(SOCK_SEQPACKET | SOCK_CLOEXEC, fds) == 0) {
			s->pair[0] = ds_fd_keep(fds[0], &s->pair[0]);
			s->pair[1] = ds_fd_keep(fds[1], &s->pair[1]);
			__atomic_store_n(&s->sh->using, 0, __ATOMIC_RELEASE);
			DS_SET(s->sharer, SHARER_UNUSED);
		}
		errno = saved;
	}
}

void ds_sharer_fork(struct ds_sock *s, int by)
{
	if (s->sharer == SHARER_USED)
		__atomic_fetch_add(&s->sh->using, (uint32_t)by, __ATOMIC_ACQ_REL);
}

bool ds_sharer_count(struct ds_sock *s)
{
	uint32_t n = __atomic_load_n(&s->sh->using, __ATOMIC_ACQUIRE);

	do
		if (n & TAKEN)
			return false;
	while (!__atomic_compare_exchange_n(&s->sh->using, &n, n + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	DS_SET(s->sharer, SHARER_USED);
	return true;
}

bool ds_sharer_map(struct ds_sock *s, int *bell)
{
	int fds[2], n = note_read(s->pair[0], MSG_PEEK, fds);
	bool there = n == 2 && ds_seg_map(&s->seg, fds[0], s->side) == 0;

	end(s);
	if (!there) {
		rpc_close(fds, n);
		return false;
	}
	REAL(close, fds[0]);
	*bell = fds[1];
	return true;
}

bool ds_sharer_free(const struct ds_sock *s)
{
	return ds_single(s) || (DS_GET(s->sharer) == SHARER_USED && __atomic_load_n(&s->sh->using, __ATOMIC_ACQUIRE) == 1);
}

bool ds_sharer_take(struct ds_sock *s, int segment, int bell)
{
	const int fds[2] = {segment, bell};
	uint32_t alone = 1;

	if (ds_single(s)) {
		ds_sharer_end(s);
		return true;
	}
	if (s->sharer != SHARER_USED || segment < 0)
		return false;
	empty(s);
	if (!note_send(s->pair[1], fds))
		return false;
	if (!__atomic_compare_exchange_n(&s->sh->using, &alone, TAKEN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
		empty(s);
		return false;
	}
	end(s);
	return true;
}

void ds_sharer_leave(struct ds_sock *s)
{
	if (s->sharer != SHARER_USED)
		return;
	__atomic_fetch_sub(&s->sh->using, 1, __ATOMIC_ACQ_REL);
	DS_SET(s->sharer, SHARER_UNUSED);
}

void ds_sharer_end(struct ds_sock *s)
{
	ds_sharer_leave(s);
	end(s);
}

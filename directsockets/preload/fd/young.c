#include "fd/call.h"

#include <errno.h>
#include <sys/syscall.h>

struct conn *conn_get(int fd)
{
	struct conn *c = conn_peek(fd);

	if (c && c->young && conn_is(c) == CONN_PENDING)
		conn_completed(c, fd);
	return c;
}

void conn_completed(struct conn *c, int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;
	int saved = errno;

	if (c->young && fd_vforked())
		return;
	/* A connection that is being made, or has failed, has no peer. Asking does not clear an
	 * error, as SO_ERROR does, and takes no lock in the kernel, as TCP_INFO does. */
	if (c->side == 1 || getpeername(fd, (struct sockaddr *)&peer, &len) == 0)
		conn_connected(c, fd);
	errno = saved;
}

/* What conn/ makes of c, which is connected. */
static struct ds_sock *handle_of(struct conn *c, int fd)
{
	if (c->side == 1)
		return ds_server(fd);
	return ds_client(fd);
}

void conn_connected(struct conn *c, int fd)
{
	int pending = CONN_PENDING;
	bool young = c->young;

	ds_critical_begin(); /* no handler is to find it between two states */
	if (!__atomic_compare_exchange_n(&c->state, &pending, young ? CONN_SETTLING : CONN_PLAIN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
		ds_critical_end();
		return;
	}
	/* Or another process has the socket without knowing the connection. */
	struct ds_sock *s = c->gen == fork_gen ? handle_of(c, fd) : NULL;
	uint8_t known = __atomic_load_n(&c->blocking, __ATOMIC_RELAXED);
	if (s && known)
		ds_flags_known(s, known == 2);
	if (s && young)
		ds_begun(s, &c->begun);
	conn_up(c, fd, s);
	if (s && young && __atomic_load_n(&c->begun.options, __ATOMIC_SEQ_CST))
		ds_options_changed(s, fd); /* by calls that were not taken over yet */
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* another thread changes blocking, and then looks for s */
	if (s && known && !__atomic_load_n(&c->blocking, __ATOMIC_RELAXED))
		ds_flags_changed(s);
	ds_critical_end();
}

void conn_settle(struct conn *c, int fd)
{
	if (c->young && conn_is(c) == CONN_PENDING)
		conn_completed(c, fd);
	for (int i = 0; i < 1000 && conn_is(c) == CONN_SETTLING; i++)
		ds_syscall(SYS_sched_yield);
}

void conn_demote(struct conn *c, int fd)
{
	conn_settle(c, fd);
	if (conn_is(c) == CONN_UP)
		ds_freeze_demote(c->s, fd);
	else
		__atomic_store_n(&c->state, CONN_PLAIN, __ATOMIC_RELEASE);
}

/* ---- all of them ----------------------------------------------------------- */

/* For conn_each: hands c to conn/, if it is young and, with *(bool *)servers, was accepted. */
static void settle(struct conn *c, void *servers)
{
	if (c->young && (c->side == 1 || !*(bool *)servers))
		conn_completed(c, conn_fd(c));
}

void young_settle(void) { conn_each(CONN_IN(CONN_PENDING), settle, &(bool){false}); }
void young_settle_servers(void) { conn_each(CONN_IN(CONN_PENDING), settle, &(bool){true}); }

struct leave {
	uint64_t cookie;
	bool found;
};

/* For conn_each: young_leave. */
static void leave(struct conn *c, void *arg)
{
	struct leave *l = arg;
	int pending = CONN_PENDING;

	if (conn_cookie(c) == l->cookie)
		l->found |= __atomic_compare_exchange_n(&c->state, &pending, CONN_PLAIN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool young_leave(uint64_t cookie)
{
	struct leave l = {cookie, false};

	conn_each(CONN_IN(CONN_PENDING), leave, &l);
	return l.found;
}

/* ---- calls on one ---------------------------------------------------------- */

/* A jump leaves a real call on a young conn: struct conn *. */
static void jumped(void *p)
{
	young_end(p);
	conn_put(p);
}

bool young_count(struct call *k, struct conn *c, int fd, uintptr_t w)
{
	int before = ds_critical_enter();

	conn_hold(c);
	if (__builtin_expect(fd_word(fd) != w, 0)) {
		conn_put(c);
		ds_critical_leave(before);
		return true;
	}
	/* From here on c is fd's. If it is young it stays so, or is taken over, which the count
	 * tells; but it may be another one than the caller saw, of the same number and place. */
	if (__builtin_expect(!conn_young(c) || conn_is(c) == CONN_NEW, 0)) {
		conn_put(c);
		ds_critical_leave(before);
		return false;
	}
	if (__builtin_expect(fd_add(&c->early, 1) & DS_TAKEN_OVER, 0)) {
		fd_add(&c->early, -1);
		conn_put(c);
		ds_critical_leave(before);
		return false;
	}
	k->slot = ds_cleanup_push(jumped, c);
	k->early = c;
	ds_critical_leave(before);
	return true;
}

bool young_begin(struct call *k, struct conn *c, int fd, uintptr_t w)
{
	if (conn_is(c) == CONN_PENDING) {
		conn_hold(c);
		if (fd_word(fd) == w)
			conn_completed(c, fd);
		conn_put(c);
	}
	int state = conn_is(c);
	if (state == CONN_UP)
		return false;
	if (!conn_young(c) || (state != CONN_PENDING && state != CONN_SETTLING))
		return true;
	return young_count(k, c, fd, w);
}

void call_shuts(const struct call *k, int how)
{
	if (k->early && how >= SHUT_RD && how <= SHUT_RDWR)
		__atomic_fetch_or(&k->early->begun.shut, (uint8_t)(1 << how), __ATOMIC_SEQ_CST);
}

void call_has_shut(const struct call *k)
{
	if (k->early && (__atomic_load_n(&k->early->early, __ATOMIC_SEQ_CST) & DS_TAKEN_OVER))
		ds_early_shut(k->early->s, k->early->begun.shut);
}

void call_set_options(const struct call *k, int fd)
{
	__atomic_store_n(&k->early->begun.options, true, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&k->early->early, __ATOMIC_SEQ_CST) & DS_TAKEN_OVER)
		ds_options_changed(k->early->s, fd);
}

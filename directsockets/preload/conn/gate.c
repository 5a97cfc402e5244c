/* Calls on the shadow alone, and the gate that keeps them out.
 *
 *   a call    users + 1 ── is the gate open? ── yes ──▶ the call of the kernel ──▶ users - 1
 *                ▲              │ no: users - 1
 *                └──────────────┘
 *   a keeper  gate = its name ── users == 0? ── yes ──▶ attaches a segment, or promotes ──▶ gate = 0
 */
#include "conn/inner.h"

#include <errno.h>
#include <sys/syscall.h>

/* The keeper of the gate was killed: opens it. It may have told the peer PROMOTE: its heir makes
 * that step before anybody goes through the gate, and asks where the direction is. */
static void gate_inherit(struct ds_sock *s, uint32_t keeper)
{
	struct ds_shared *h = s->sh;
	bool taken = ds_has_segment(s) && ds_tx_take(s, false);

	__atomic_compare_exchange_n(&h->gate, &keeper, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	if (taken)
		ds_unlock(&h->tx_lock, false);
}

void ds_users_begin(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;

	if (ds_alone(s)) {
		ds_add_here(&h->users, 1);
		return;
	}
	for (int i = 1;; i++) {
		__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
		uint32_t keeper = __atomic_load_n(&h->gate, __ATOMIC_SEQ_CST);
		if (!keeper || keeper == ds_me())
			return;
		__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
		ds_syscall(SYS_sched_yield);
		if (i % 1024 == 0 && ds_name_dead(keeper))
			gate_inherit(s, keeper);
	}
}

void ds_users_end(struct ds_sock *s)
{
	if (ds_alone(s))
		ds_add_here(&s->sh->users, -1u);
	else
		__atomic_fetch_sub(&s->sh->users, 1, __ATOMIC_SEQ_CST);
}

bool ds_shadow_used(const struct ds_sock *s) { return s->sh && __atomic_load_n(&s->sh->users, __ATOMIC_SEQ_CST); }

/* A jump has left a use of the shadow: struct ds_sock *. */
static void jumped(void *s) { ds_users_end(s); }

void ds_use_begin(struct ds_use *u, struct ds_sock *s)
{
	if (!s->sh)
		return;
	ds_critical_begin();
	ds_users_begin(s);
	u->s = s;
	u->slot = ds_cleanup_push(jumped, s);
	ds_critical_end();
}

void ds_use_end(struct ds_use *u)
{
	if (!u->s)
		return;
	ds_critical_begin();
	ds_cleanup_pop(u->slot);
	ds_users_end(u->s);
	u->s = NULL;
	ds_critical_end();
}

bool ds_gate_shut(struct ds_sock *s)
{
	uint32_t none = 0;

	if (!__atomic_compare_exchange_n(&s->sh->gate, &none, ds_me(), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return false;
	if (!__atomic_load_n(&s->sh->users, __ATOMIC_SEQ_CST))
		return true;
	ds_gate_open(s);
	return false;
}

bool ds_gate_clear(struct ds_sock *s, unsigned us)
{
	uint64_t one = 1, end = ds_ticks() + us * ds_ticks_us();
	uint32_t none = 0;
	int fd = __atomic_load_n(&s->wakefd, __ATOMIC_ACQUIRE);

	if (!__atomic_compare_exchange_n(&s->sh->gate, &none, ds_me(), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return false;
	while (__atomic_load_n(&s->sh->users, __ATOMIC_SEQ_CST) && fd >= 0 && (int64_t)(end - ds_ticks()) > 0) {
		ds_syscall(SYS_write, fd, &one, sizeof one); /* again for each: one that wakes reads it */
		ds_syscall(SYS_sched_yield);
	}
	if (!__atomic_load_n(&s->sh->users, __ATOMIC_SEQ_CST))
		return true;
	ds_gate_open(s);
	return false;
}

void ds_gate_open(struct ds_sock *s) { __atomic_store_n(&s->sh->gate, 0, __ATOMIC_SEQ_CST); }

ssize_t ds_shadow_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	DS_USE(use);
	DS_BY_NUMBER(kernel);

	ds_use_begin(&use, s);
	ds_by_number_begin(&kernel, &s->life->numbered, flags & MSG_DONTWAIT);
	/* The gate may have been shut until now, and another thread have promoted. */
	int mode = ds_has_segment(s) ? ds_mode(&s->sh->tx_mode) : TX_SHADOW;
	fd = ds_still(s, fd);
	if (__builtin_expect(mode == TX_DIRECT || mode == TX_RETURNING, 0))
		return DS_CHANGED;
	ssize_t r = ds_real_send(fd, iov, n, flags);
	if (r > 0)
		ds_moved(s, (size_t)r, 0);
	return r;
}

ssize_t ds_still_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags)
{
	const unsigned *changes = &s->life->numbered.changes;
	unsigned before;
	ssize_t r;

	do { /* dup2 may have given the number to a file that is no socket, before the kernel looked */
		before = __atomic_load_n(changes, __ATOMIC_SEQ_CST);
		fd = ds_still(s, fd);
		r = ds_real_recv(fd, iov, n, flags);
	} while (r < 0 && errno == ENOTSOCK && __atomic_load_n(changes, __ATOMIC_SEQ_CST) != before);
	return r;
}

ssize_t ds_shadow_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags, bool early)
{
	DS_USE(use);
	DS_BY_NUMBER(kernel);

	ds_use_begin(&use, s);
	if (__builtin_expect(early && ds_has_segment(s), 0))
		return DS_CHANGED;
	if (flags & MSG_DONTWAIT)
		ds_by_number_begin(&kernel, &s->life->numbered, true);
	ssize_t r = ds_still_recv(s, fd, iov, n, flags);
	if (r > 0 && !(flags & MSG_PEEK))
		ds_moved(s, 0, (size_t)r);
	return r ? r : ds_end(s, iov, n);
}

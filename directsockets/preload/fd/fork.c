/* Fork, for all state of the process. */
#include "fd/handover.h"
#include "fd/epoll.h"

#include <errno.h>

/* This thread forks, alone, a process that has had no socket and no epoll instance: neither side
 * writes to memory that they share until then, and signals wait as while locks are held. */
static DS_LOCAL bool thread_idle;
#define idle DS_HERE(thread_idle)

/* It forks in a call, or in a handler that has interrupted one: the child goes on with it. */
static DS_LOCAL bool thread_calls;
#define in_call DS_HERE(thread_calls)

/* For conn_each: parent and child may come to use c, or not. A call that goes on in both says no
 * more that it uses c. If it waits on the shadow, it is counted once among those that keep c
 * there, and ends twice: so c stays on TCP. */
static void forking(struct conn *c, void *arg)
{
	(void)arg;
	if (in_call && ds_shadow_used(c->life.s))
		conn_demote(c, conn_fd(c));
	else if (!in_call && !__atomic_load_n(&c->nmembers, __ATOMIC_RELAXED))
		ds_sharer_forking(c->life.s);
}

/* Has this process had nothing of ours? */
static bool unused(void) { return !fd_tab_size && !ds_setup_used; }

void fork_prepare_for(struct ds_sock *s)
{
	in_call = s || ds_self.cleanups;
	idle = ds_one_thread() && unused();
	if (idle) {
		ds_critical_begin();
		return;
	}
	fd_numbers_lock(); /* first: a thread that has it makes no fork and waits for none, but takes the others */
	uncounted_settle();
	conn_each(CONN_IN(CONN_KNOWN), forking, NULL);
	ds_gen++;
	ds_fork_prepare_for(s);
	ep_fork_prepare(); /* the order of locks: epoll.h */
	ds_dg_forking();
}

void fork_parent(pid_t pid)
{
	int saved = errno;

	if (idle) {
		if (!unused()) { /* another library's handler of this fork has made something */
			ds_gen++;
			ds_dg_forked_unprepared(false);
		}
		ds_critical_end();
		return;
	}
	ds_gen++; /* what another thread has made since fork_prepare may be the child's, too */
	ds_dg_forked(pid);
	ep_fork_parent();
	ds_fork_parent(pid);
	fd_numbers_unlock();
	errno = saved;
}

void fork_prepare(void) { fork_prepare_for(NULL); }

/* For conn_each: threads that are in a call on c, or were about to make its handle, are the
 * parent's. */
static void abandoned(struct conn *c, void *arg)
{
	(void)arg;
	ds_by_number_child(&c->life.numbered);
	if (ds_life_settles(&c->life))
		ds_life_abandon(&c->life);
}

/* For conn_each: those threads' references, too. One that the parent has closed while they were in
 * a call ends here. */
static void left_by_threads(struct conn *c, void *arg)
{
	(void)arg;
	__atomic_fetch_and(&c->life.calls, DS_TAKEN_OVER, __ATOMIC_RELAXED);
	__atomic_store_n(&c->users, (c->nfds > 0) + 1, __ATOMIC_RELAXED); /* and the one that conn_each has */
}

/* The same, for ds_dg_each. */
static void dgram_left_by_threads(struct ds_dgram *d, void *arg)
{
	(void)arg;
	__atomic_store_n(&d->users, (d->nfds > 0) + 1, __ATOMIC_RELAXED);
	ds_dg_put(d);
}

void fork_child(void)
{
	fd_after_fork();
	ds_fds_forked();
	if (idle && unused()) {
		ds_me_child();
		ds_critical_end();
		return;
	}
	if (idle) { /* as in fork_parent */
		ds_gen++;
		fd_numbers_lock();
		ds_fork_prepare();
		ep_fork_prepare();
		ds_critical_end();
	}
	conn_each(~0u, abandoned, NULL);
	ep_fork_child();
	if (idle)
		ds_dg_forked_unprepared(true);
	else
		ds_dg_forked(0);
	ds_fork_child();
	fd_numbers_child();
	if (in_call)
		return;
	conn_each(~0u, left_by_threads, NULL);
	ds_dg_each(dgram_left_by_threads, NULL);
}

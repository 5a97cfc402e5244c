/* Fork, for all state of the process. */
#include "fd/carry.h"
#include "fd/epoll.h"

#include <errno.h>

/* For conn_each: parent and child may come to use c, or not. */
static void forking(struct conn *c, void *arg)
{
	(void)arg;
	if (!__atomic_load_n(&c->nmembers, __ATOMIC_RELAXED))
		ds_kin_forking(c->s);
}

void fork_prepare(void)
{
	young_settle();
	conn_each(CONN_IN(CONN_UP), forking, NULL);
	fork_gen++;
	ds_fork_prepare();
	ep_fork_prepare(); /* the order of locks: epoll.h */
}

void fork_parent(pid_t pid)
{
	int saved = errno;

	fork_gen++; /* what another thread has made since fork_prepare may be the child's, too */
	ep_fork_parent();
	ds_fork_parent(pid);
	errno = saved;
}

void fork_child(void)
{
	fd_after_fork();
	ep_fork_child();
	ds_fork_child();
}

/* Fork, for all state of the process. */
#include "fd/carry.h"
#include "fd/epoll.h"

#include <errno.h>

void fork_prepare(void)
{
	fork_gen++;
	ds_fork_prepare();
	ep_fork_prepare(); /* the order of locks: epoll.h */
}

void fork_parent(pid_t pid)
{
	int saved = errno;

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

/* Starts the agent: when the program begins, and in each child that fork makes. */
#include "agent.h"
#include "raw.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct pg_area *area;

/* Starts the agent's thread and waits until it has met the pager: nothing of the program runs
 * before. No signal comes to that thread. */
static void start_agent(void)
{
	const int flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID; /* not CLONE_FILES */
	const uint64_t all = ~0ULL; /* the C library's own, too */
	uint64_t before;
	int saved = errno;

	if (PG_CALL(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all) < 0)
		return;
	area->ready = area->ended = 0;
	int thread = clone(pg_agent, area->stack + PG_STACK, flags, area, NULL, NULL, &area->thread);

	PG_CALL(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof all);
	while (thread > 0 && !__atomic_load_n(&area->ready, __ATOMIC_ACQUIRE))
		PG_CALL(SYS_futex, &area->ready, FUTEX_WAIT_PRIVATE, 0, 0);
	errno = saved;
}

/* In the parent, after fork. The pager looks then at what is promised of the parent's memory: until
 * it has, the parent is not to go on, and change that. The call waits until the pager has read that
 * the page is given back, which it does after all that was to be read before. */
static void parent_after_fork(void)
{
	if (area)
		PG_CALL(SYS_madvise, &area->mark, PG_PAGE, MADV_DONTNEED, 0);
}

/* In a child of fork. */
static void child_after_fork(void)
{
	if (area)
		start_agent();
}

__attribute__((constructor)) static void start(void)
{
	const char *path = secure_getenv("EXNET_PAGER");

	if (!path || strlen(path) >= sizeof area->path)
		return;
	struct pg_area *made = mmap(NULL, PG_AREA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (made == MAP_FAILED)
		return;
	/* What waits in a slot is the parent's: a child has none. Memory of other use merges with
	 * neither part. */
	if (madvise(made, PG_AREA_SIZE, MADV_DONTDUMP) != 0 || madvise(&made->mark, PG_AREA_SIZE - PG_PAGE, MADV_WIPEONFORK) != 0) {
		munmap(made, PG_AREA_SIZE);
		return;
	}
	strcpy(made->path, path);
	area = made;
	pthread_atfork(NULL, parent_after_fork, child_after_fork);
	start_agent();
}

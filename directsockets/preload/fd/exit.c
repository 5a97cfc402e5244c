/* Leaving connections to the other processes that share them: when this process ends, and when it
 * is about to restrict its system calls, or to hide what it does with descriptors. */
#include "fd/handover.h"

/* For conn_each: sets *(bool *)arg if another process shares c. */
static void leaves(struct conn *c, void *arg) { *(bool *)arg |= ds_leaves(c->life.s); }

/* For conn_each: the others need not count this process; *(bool *)arg: it ends at once. */
static void leave(struct conn *c, void *arg) { ds_leave(c->life.s, *(bool *)arg); }

/* For conn_each: the process ends, and c with it; *(bool *)arg: at once. */
static void goodbye(struct conn *c, void *arg)
{
	ds_exit_one(c->life.s, conn_fd(c), *(bool *)arg || !ds_one_thread());
}

DS_START void fd_leave(bool at_once)
{
	bool any = false;

	if (!fd_tab_size || fd_vforked())
		return;
	/* Not in a handler that has interrupted who has locks: _exit waits for nobody there. */
	if (!at_once || (!ds_self.critical && !ds_interrupted()))
		conn_each(CONN_IN(CONN_KNOWN), goodbye, &at_once);
	/* Another thread may go on sending until the process is gone. */
	if (!ds_one_thread())
		return;
	if (at_once)
		ds_critical_begin(); /* no handler is to use what it leaves */
	else
		conn_each(CONN_IN(CONN_KNOWN) | CONN_IN(CONN_FORGOTTEN), leaves, &any);
	if (any)
		fflush(NULL); /* as exit will: once the others count on this process having ended, it must not write */
	conn_each(CONN_IN(CONN_KNOWN) | CONN_IN(CONN_FORGOTTEN), leave, &at_once);
}

/* Moves c back to TCP, and has the kernel make all calls on fd, one of its descriptors. Not so if
 * bytes are unread that only the peer can bring back. */
static void seal(struct conn *c, int fd)
{
	bool raw = true;

	if (conn_is(c) == CONN_KNOWN) {
		ds_fall_back(c->life.s, fd);
		raw = (!ds_bell_open(c->life.s) || returned(c->life.s, fd)) && ds_on_shadow_rx(c->life.s) && ds_on_shadow_tx(c->life.s);
	}
	if (!raw)
		return;
	if (c->members)
		fd_notices->native(c);
	fd_forget(fd);
}

void fd_seal(void)
{
	if (fd_vforked())
		return;
	ds_me(); /* asks the kernel now, the first time */
	ds_name_process();
	ds_name_seal();
	__atomic_store_n(&fd_sealed, true, __ATOMIC_SEQ_CST);
	for (unsigned fd = 0; fd < fd_tab_end; fd++) {
		struct conn *c = conn_get((int)fd);

		if (fd_kind((int)fd) == FD_LISTENER) /* or a UDP socket */
			fd_closing((int)fd); /* the broker has to know while it can be told */
		if (!c)
			continue;
		seal(c, (int)fd);
		conn_put(c);
	}
	ds_memory_trust();
}

#include "fd/call.h"

struct conn *conn_get(int fd)
{
	struct conn *c = conn_peek(fd);

	if (c && conn_is(c) == CONN_UNCOUNTED)
		conn_completed(c, fd);
	return c;
}

void conn_completed(struct conn *c, int fd)
{
	if (conn_is(c) == CONN_UNCOUNTED && fd_vforked())
		return;
	__atomic_store_n(&c->lastfd, fd, __ATOMIC_RELAXED);
	ds_life_complete(&c->life, fd);
}

void conn_demote(struct conn *c, int fd) { ds_life_demote(&c->life, fd); }

/* ---- all of them ----------------------------------------------------------- */

/* For conn_each: makes the handle of c if, with *(bool *)servers, it was accepted. */
static void settle(struct conn *c, void *servers)
{
	if (c->life.side == 1 || !*(bool *)servers)
		conn_completed(c, conn_fd(c));
}

void uncounted_settle(void) { conn_each(CONN_IN(CONN_UNCOUNTED), settle, &(bool){false}); }
void uncounted_settle_servers(void) { conn_each(CONN_IN(CONN_UNCOUNTED), settle, &(bool){true}); }

struct leave {
	uint64_t cookie;
	bool found;
};

/* For conn_each: uncounted_leave. */
static void leave(struct conn *c, void *arg)
{
	struct leave *l = arg;

	if (conn_cookie(c) == l->cookie)
		l->found |= ds_life_leave(&c->life);
}

bool uncounted_leave(uint64_t cookie)
{
	struct leave l = {cookie, false};

	conn_each(CONN_IN(CONN_CONNECTING) | CONN_IN(CONN_UNCOUNTED), leave, &l);
	return l.found;
}

/* ---- calls on one ---------------------------------------------------------- */

void uncounted_jumped(void *p)
{
	struct conn *c = p;

	ds_life_uncount(&c->life);
	conn_put(c);
}

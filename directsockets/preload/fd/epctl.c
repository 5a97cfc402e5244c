/* epoll_ctl: what a program adds to a set, changes and takes out. */
#include "fd/epoll_int.h"

#include <errno.h>
#include <netinet/in.h>

/* Was e made by another process that still has it? They share the kernel's list, but each knows
 * only its own members: the other process would be told about what this one adds by a tag that it
 * does not know. */
static bool of_others(struct epi *e)
{
	uint32_t me = fd_process();

	if (e->owner == me)
		return false;
	if (!ds_name_dead(e->owner))
		return true;
	e->owner = me; /* a program that has become a daemon */
	return false;
}

/* The next functions return what epoll_ctl does, or DEMOTE: there is no member for it, so the
 * connection must stay on TCP, with the program's own data. ep_lock and e's lock are held. */
enum { DEMOTE = -2 };

/* Does the entry report edges, or once? Then it has its tag before anything becomes direct, so that
 * nothing is reported twice. */
static bool fires(const struct epoll_event *ev)
{
	return (ev->events & (EPOLLET | EPOLLONESHOT)) && !(ev->events & EPOLLEXCLUSIVE);
}

/* EPOLL_CTL_ADD of fd, which is c. */
static int ctl_add(struct epi *e, int epfd, struct conn *c, int fd, const struct epoll_event *ev)
{
	struct member *m = of_others(e) ? NULL : m_new(c, e, fd, ev);

	if (!m)
		return DEMOTE;
	bool bell = conn_is(c) == CONN_KNOWN && ds_bell(c->life.s) >= 0;
	m->exclusive = ev->events & EPOLLEXCLUSIVE;
	m->tagged = fires(ev) || (bell && !(ev->events & EPOLLEXCLUSIVE));
	struct epoll_event k = {.events = ev->events, .data.u64 = m->tagged ? m->tag : ev->data.u64};
	int rc = REAL(epoll_ctl, epfd, EPOLL_CTL_ADD, fd, &k);
	if (rc != 0) {
		int saved = errno;
		m_free(m);
		errno = saved;
		return rc;
	}
	m->kevents = ev->events;
	if (bell) {
		m_attach(m);
		m_entry(m);
		epi_news(e);
	}
	return rc;
}

/* EPOLL_CTL_MOD of a member. */
static int ctl_mod(struct member *m, int epfd, const struct epoll_event *ev)
{
	struct epi *e = m->e;
	uint32_t before = m->events;

	if (m->exclusive) { /* as in the kernel */
		errno = EINVAL;
		return -1;
	}
	if (!m->tagged && fires(ev)) /* from now on the entry must not change by itself */
		m->tagged = true;
	if (!m->tagged || (ev->events & EPOLLEXCLUSIVE)) {
		int rc = REAL(epoll_ctl, epfd, EPOLL_CTL_MOD, m->fd, (struct epoll_event *)ev);
		if (rc == 0 && !m->tagged) {
			m->events = ev->events;
			m->data = ev->data.u64;
		}
		return rc;
	}
	m->events = ev->events;
	m->data = ev->data.u64;
	m_entry(m);
	if (!m->joined)
		return m_modify(m);
	m_disarm(m);
	m_activate(m);
	/* An entry that is to fire again, on an edge or once, is set again. */
	if ((m->events & (EPOLLET | EPOLLONESHOT)) == EPOLLET) {
		m_modify(m);
	} else if ((m->events | before) & (EPOLLET | EPOLLONESHOT)) {
		m->kevents = ~0u;
		m_look(m);
	}
	epi_news(e);
	return 0;
}

/* Programs that take a socket out whenever they have nothing to ask (redis-benchmark twice for each
 * request) should not pay for it: if the kernel can report nothing of a socket but its end, its
 * entries stay until they report. */
static int ctl_del(struct member *m, int epfd)
{
	struct epi *e = m->e;

	if (m->joined && m->kevents == EPOLLET && m->bell >= 0 && m->c->members == m && !m->cnext && !e->nested && ds_direct(m->c->life.s) == 3) {
		m_disarm(m);
		m_passive(m);
		m->deleted = true;
		return 0;
	}
	int rc = REAL(epoll_ctl, epfd, EPOLL_CTL_DEL, m->fd, NULL);
	if (rc == 0 || errno == ENOENT) {
		int saved = errno;
		m->unlinked = true;
		m_bell_out(m);
		m_free(m);
		errno = saved;
	}
	return rc;
}

/* The other half of ctl_del: adds m, which was deleted, again. False: its entries had gone, and m
 * is freed. */
static bool ctl_revive(struct member *m, const struct epoll_event *ev)
{
	struct epi *e = m->e;

	if (m->unlinked || (ev->events & EPOLLEXCLUSIVE)) {
		m_unlink(m);
		m_free(m);
		return false;
	}
	m->events = ev->events;
	m->exclusive = false;
	m->data = ev->data.u64;
	m->kseen = 0;
	m_entry(m);
	m_activate(m);
	if ((m->events & (EPOLLET | EPOLLONESHOT)) == EPOLLET)
		m_modify(m);
	epi_news(e);
	return true;
}

/* If the only member of c is one that was deleted: true if it is that of e and fd, and is back;
 * else it is freed. c has members. */
static bool ctl_back(struct conn *c, struct epi *e, int fd, const struct epoll_event *ev)
{
	struct member *left = c->members;
	bool back = false;
	struct epi *of = left->e;
	lk_lock(&of->lock);
	if (left->deleted && of == e && left->fd == fd) {
		back = ctl_revive(left, ev);
	} else if (left->deleted) {
		m_unlink(left);
		m_free(left);
	}
	lk_unlock(&of->lock);
	return back;
}

/* The instance of epfd, by which fd is to be changed: also of an instance that was made behind our
 * back (only an instance says ENOENT). ep_lock is held. */
static struct epi *instance(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct epi *e = word_epi(fd_word(epfd));

	if (!e && op == EPOLL_CTL_ADD && fd_word(epfd) == 0 && REAL(epoll_ctl, epfd, EPOLL_CTL_MOD, fd, ev) != 0 && errno == ENOENT)
		e = epi_make(epfd);
	if (e && __atomic_load_n(&e->epfd, __ATOMIC_RELAXED) < 0)
		__atomic_store_n(&e->epfd, epfd, __ATOMIC_RELAXED);
	return e;
}

/* epoll_ctl of a conn that conn/ knows or may come to know. ep_lock is held. */
static int ctl(int epfd, int op, struct conn *c, int fd, struct epoll_event *ev)
{
	struct epi *e = instance(epfd, op, fd, ev);
	int rc;

	if (op == EPOLL_CTL_ADD && c->members && ctl_back(c, e, fd, ev))
		return 0;
	struct member *m = e ? m_find(c, e, fd) : NULL;
	if (!e || (op == EPOLL_CTL_ADD ? m != NULL : !m))
		return REAL(epoll_ctl, epfd, op, fd, ev);
	lk_lock(&e->lock);
	if (m)
		m->orphan = false; /* its number is the socket's again */
	if (m && m->deleted) {
		errno = ENOENT;
		rc = -1;
	} else if (op == EPOLL_CTL_ADD) {
		rc = ctl_add(e, epfd, c, fd, ev);
	} else if (op == EPOLL_CTL_MOD) {
		rc = ctl_mod(m, epfd, ev);
	} else if (op == EPOLL_CTL_DEL) {
		rc = ctl_del(m, epfd);
	} else {
		rc = REAL(epoll_ctl, epfd, op, fd, ev);
	}
	lk_unlock(&e->lock);
	return rc;
}

/* A TCP socket that was made behind our back (inherited, or by a raw system call) and
 * joins a set: its conn has to know the set before it is connected. */
static struct conn *adopt(int fd)
{
	int protocol = 0, accepting = 1, saved = errno;
	socklen_t len = sizeof protocol;
	struct conn *c = NULL;

	if (fd_word(fd) == 0 && REAL(getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == IPPROTO_TCP &&
	    REAL(getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &len) == 0 && !accepting && conn_new(fd, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN))
		c = conn_get(fd);
	errno = saved;
	return c;
}

/* An instance, inner, joins the set of epfd. */
static void nest(int epfd, struct epi *inner)
{
	lk_lock(&ep_lock);
	struct epi *outer = word_epi(fd_word(epfd));
	if (outer && outer != inner)
		outer->holds = true;
	epi_settle(inner, false);
	lk_unlock(&ep_lock);
}

/* Has the instance of epfd a direct member? No lock: its memory stays. */
static bool has_direct(int epfd)
{
	struct epi *e = word_epi(fd_word(epfd));

	return e && __atomic_load_n(&e->joined, __ATOMIC_RELAXED) > 0;
}

/* ep_ctl of the UDP socket d, which is held. */
static __attribute__((noinline)) int ctl_dgram(int epfd, int op, struct ds_dgram *d, int fd, struct epoll_event *ev)
{
	int rc = REAL(epoll_ctl, epfd, op, fd, ev);

	if (rc == 0)
		dgset_ctl(word_epi(fd_word(epfd)), op, d, fd, ev);
	int saved = errno;
	ds_dg_put(d);
	errno = saved;
	return rc;
}

/* ep_ctl of what has no word, or that of an instance or of a listener. */
static __attribute__((noinline)) int ctl_other(int epfd, int op, int fd, struct epoll_event *ev, uintptr_t w)
{
	struct epi *inner = word_epi(w);

	if (op == EPOLL_CTL_ADD && inner) {
		dgset_native(inner);
		nest(epfd, inner);
	}
	return REAL(epoll_ctl, epfd, op, fd, ev);
}

int ep_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	uintptr_t w = fd_settled(fd);
	struct ds_dgram *d = __builtin_expect(word_dgram(w) != NULL, 0) ? dgram_get(fd, w) : NULL;
	struct conn *c = conn_peek(fd);
	int rc;

	fd_settled(epfd); /* not with ep_lock */
	if (d)
		return ctl_dgram(epfd, op, d, fd, ev);
	if (!c && op == EPOLL_CTL_ADD && ev && !fd_is_sealed() && !fd_vforked())
		c = adopt(fd);
	if (!c)
		return ctl_other(epfd, op, fd, ev, w);
	int state = conn_is(c);
	if (state == CONN_KNOWN)
		ds_sharer_use(c->life.s, fd);
	else if (op == EPOLL_CTL_ADD && state == CONN_UNCOUNTED && c->life.side == 1 && (has_direct(epfd) || ds_tests_wait()))
		conn_completed(c, fd); /* events of direct ones have an order */
	if ((!ev && op != EPOLL_CTL_DEL) || ds_life_plain(conn_is(c))) {
		rc = REAL(epoll_ctl, epfd, op, fd, ev);
	} else {
		lk_lock(&ep_lock);
		rc = ctl(epfd, op, c, fd, ev);
		lk_unlock(&ep_lock);
	}
	if (rc == DEMOTE) { /* this takes locks that come before ep_lock */
		conn_demote(c, fd);
		rc = REAL(epoll_ctl, epfd, EPOLL_CTL_ADD, fd, ev);
	}
	conn_put(c);
	return rc;
}

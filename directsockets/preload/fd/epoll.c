#include "fd/epoll_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { EPIS = 1 << 16 };

static struct epi *epis;
static uint32_t epi_used;
static struct epi *epi_free;
static pid_t own_pid;

/* The instances are this process's. */
static void own(void)
{
	own_pid = getpid();
	ep_name = (uint32_t)own_pid | (DS_TID_MASK + 1);
}

/* ---- instances ----------------------------------------------------------- */

/* ep_lock is held. */
static struct epi *epi_make(int epfd)
{
	struct epi *e = epi_free;

	if (!epis)
		return NULL;
	if (e)
		epi_free = e->next ? &epis[e->next - 1] : NULL;
	else if (epi_used < EPIS)
		e = &epis[epi_used++];
	else
		return NULL;
	e->epfd = epfd;
	__atomic_store_n(&e->nfds, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&e->users, 1, __ATOMIC_ACQ_REL); /* not =: a thread that comes late may just have it */
	e->pid = fd_pid();
	e->sleepers = e->naps = e->joined = e->crooked = e->followers = e->reads = 0;
	e->nested = e->holds = e->nobell = e->woken = e->others = false;
	e->wakefd = -1;
	e->all = e->active_head = e->active_tail = NULL;
	e->nactive = 0;
	fd_set_epoll(epfd, e);
	return e;
}

void epi_new(int epfd)
{
	lk_lock(&ep_lock);
	epi_make(epfd);
	lk_unlock(&ep_lock);
}

struct epi *epi_get(int epfd)
{
	struct epi *e = word_epi(fd_word(epfd));

	if (!e)
		return NULL;
	__atomic_fetch_add(&e->users, 1, __ATOMIC_ACQ_REL);
	if (word_epi(fd_word(epfd)) == e)
		return e;
	epi_put(e);
	return NULL;
}

/* There is one more descriptor of e. */
static void epi_dup(struct epi *e)
{
	__atomic_fetch_add(&e->nfds, 1, __ATOMIC_ACQ_REL);
}

void epi_put(struct epi *e)
{
	if (__atomic_sub_fetch(&e->users, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	lk_lock(&ep_lock);
	if (__atomic_load_n(&e->users, __ATOMIC_ACQUIRE) == 0 && __atomic_load_n(&e->nfds, __ATOMIC_RELAXED) == 0) {
		__atomic_store_n(&e->nfds, -1, __ATOMIC_RELAXED);
		lk_lock(&e->lock);
		while (e->all)
			m_free(e->all);
		lk_unlock(&e->lock);
		if (e->wakefd >= 0)
			REAL(close)(e->wakefd);
		e->next = epi_free ? (uint32_t)(epi_free - epis + 1) : 0;
		epi_free = e;
	}
	lk_unlock(&ep_lock);
}

/* fd, one of e's, goes. */
static void epi_close(struct epi *e, int fd)
{
	if (__atomic_load_n(&e->epfd, __ATOMIC_RELAXED) == fd)
		__atomic_store_n(&e->epfd, -1, __ATOMIC_RELAXED); /* another descriptor of it may be left: see ep_fd */
	if (__atomic_sub_fetch(&e->nfds, 1, __ATOMIC_ACQ_REL) == 0)
		epi_put(e);
}

/* ---- telling those who sleep in it, or on it ------------------------------- */

void epi_news(struct epi *e)
{
	if (__atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) == 0 && !e->nested)
		return;
	if (epi_arm_all(e))
		epi_wake(e);
	else if (e->nested)
		epi_clear_wake(e);
	epi_nap(e);
}

/* The members of c look again, but for those of an instance (NULL: none). With ep_lock. */
static void news(struct conn *c, const struct epi *but)
{
	for (struct member *m = c->members; m; m = m->cnext) {
		struct epi *e = m->e;

		if (e == but)
			continue;
		lk_lock(&e->lock);
		if (!m->deleted) {
			m_disarm(m);
			m_activate(m);
			epi_news(e);
		}
		lk_unlock(&e->lock);
	}
}

void ep_news(struct conn *c)
{
	lk_lock(&ep_lock);
	news(c, NULL);
	lk_unlock(&ep_lock);
}

/* A conn whose bell was read in e, or NULL. With ep_lock, so that it stays. */
static struct conn *was_read(struct epi *e)
{
	struct conn *c = NULL;

	lk_lock(&e->lock);
	for (struct member *m = e->reads > 0 ? e->all : NULL; m && !c; m = m->enext)
		if (m->read) {
			m->read = false;
			e->reads--;
			c = m->c;
		}
	lk_unlock(&e->lock);
	return c;
}

void epi_pass_on(struct epi *e)
{
	struct conn *c;

	lk_lock(&ep_lock);
	while ((c = was_read(e)))
		news(c, e);
	lk_unlock(&ep_lock);
}

void epi_settle(struct epi *e, bool rung)
{
	lk_lock(&e->lock);
	e->nested = true;
	for (struct member *m = rung ? e->all : NULL; m; m = m->enext)
		if (m->armed && m->had) { /* what its peer said may be nothing to tell: PROMOTE, say */
			m_rung(m);
			m_disarm(m);
			m_activate(m);
		}
	epi_news(e);
	bool pass = e->reads > 0;
	lk_unlock(&e->lock);
	if (pass)
		epi_pass_on(e);
}

void epi_settle_nested(bool rung)
{
	lk_lock(&ep_lock);
	for (uint32_t i = 0; i < epi_used; i++)
		if (epis[i].nested && __atomic_load_n(&epis[i].nfds, __ATOMIC_RELAXED) > 0)
			epi_settle(&epis[i], rung);
	lk_unlock(&ep_lock);
}

/* ---- epoll_ctl ------------------------------------------------------------ */

/* Was e made by another process, that still has it? The kernel's list is one for all of them, but
 * each knows only its own members: they would be told of what this process adds by a tag that says
 * nothing to them. */
static bool of_others(struct epi *e)
{
	pid_t me = fd_pid();

	if (e->pid == me)
		return false;
	if (!ds_tid_dead((uint32_t)e->pid))
		return true;
	e->pid = me; /* the rest of a program that has become a daemon */
	return false;
}

/* These: ep_lock and e's lock are held. As epoll_ctl, but DEMOTE: nobody could tell where its bell
 * belongs, so it is to stay on TCP, with the program's own data. */
enum { DEMOTE = -2 };

/* Does it tell of edges, or once? Such an entry has its tag before anything becomes direct: that
 * nothing is told twice. */
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
	bool bell = c->state == CONN_UP && ds_bell(c->s) >= 0;
	m->exclusive = ev->events & EPOLLEXCLUSIVE;
	m->tagged = fires(ev) || (bell && !(ev->events & EPOLLEXCLUSIVE));
	struct epoll_event k = {.events = ev->events, .data.u64 = m->tagged ? m->tag : ev->data.u64};
	int rc = REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, fd, &k);
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
	if (!m->tagged && fires(ev)) /* an entry that is not to be changed any more */
		m->tagged = true;
	if (!m->tagged || (ev->events & EPOLLEXCLUSIVE)) {
		int rc = REAL(epoll_ctl)(epfd, EPOLL_CTL_MOD, m->fd, (struct epoll_event *)ev);
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
	/* An entry that has to fire again, by edge or once more, is set again. */
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
 * request) should not pay for it: if the kernel has nothing to tell of a socket but its end, its
 * entries stay. They go when they report. */
static int ctl_del(struct member *m, int epfd)
{
	struct epi *e = m->e;

	if (m->joined && m->kevents == EPOLLET && m->bell >= 0 && m->c->members == m && !m->cnext && !e->nested && ds_direct(m->c->s) == 3) {
		m_disarm(m);
		m_passive(m);
		m->deleted = true;
		return 0;
	}
	int rc = REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, m->fd, NULL);
	if (rc == 0 || errno == ENOENT) {
		int saved = errno;
		m->unlinked = true;
		m_bell_out(m);
		m_free(m);
		errno = saved;
	}
	return rc;
}

/* The other half of ctl_del: m, which was deleted, comes back. False: its entries went, and so did
 * it. */
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

/* A member of c that was deleted is its only one: true if it is the one of e and fd, and is
 * back. */
static bool ctl_back(struct conn *c, struct epi *e, int fd, const struct epoll_event *ev)
{
	struct member *left = c->members;
	bool back = false;

	if (!left)
		return false;
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

/* The instance of epfd, by which fd is to be changed: also of one made behind our back (only such
 * say ENOENT). ep_lock is held. */
static struct epi *instance(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct epi *e = word_epi(fd_word(epfd));

	if (!e && op == EPOLL_CTL_ADD && fd_word(epfd) == 0 && REAL(epoll_ctl)(epfd, EPOLL_CTL_MOD, fd, ev) != 0 && errno == ENOENT)
		e = epi_make(epfd);
	if (e && __atomic_load_n(&e->epfd, __ATOMIC_RELAXED) < 0)
		__atomic_store_n(&e->epfd, epfd, __ATOMIC_RELAXED);
	return e;
}

/* epoll_ctl of a conn that the core knows or may come to know. ep_lock is held. */
static int ctl(int epfd, int op, struct conn *c, int fd, struct epoll_event *ev)
{
	struct epi *e = instance(epfd, op, fd, ev);
	int rc;

	if (op == EPOLL_CTL_ADD && ctl_back(c, e, fd, ev))
		return 0;
	struct member *m = e ? m_find(c, e, fd) : NULL;
	if (!e || (op == EPOLL_CTL_ADD ? m != NULL : !m))
		return REAL(epoll_ctl)(epfd, op, fd, ev);
	lk_lock(&e->lock);
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
		rc = REAL(epoll_ctl)(epfd, op, fd, ev);
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

	if (fd_word(fd) == 0 && REAL(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == IPPROTO_TCP &&
	    REAL(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &len) == 0 && !accepting && conn_new(fd, CONN_NEW))
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

int ep_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct epi *inner = word_epi(fd_word(fd));
	struct conn *c = conn_get(fd);
	int rc;

	if (inner && op == EPOLL_CTL_ADD)
		nest(epfd, inner);
	if (c && c->state == CONN_UP)
		ds_kin_use(c->s, fd);
	if (!c && op == EPOLL_CTL_ADD && ev && !fd_vforked())
		c = adopt(fd);
	if (!c)
		return REAL(epoll_ctl)(epfd, op, fd, ev);
	if ((!ev && op != EPOLL_CTL_DEL) || c->state == CONN_PLAIN) {
		rc = REAL(epoll_ctl)(epfd, op, fd, ev);
	} else {
		lk_lock(&ep_lock);
		rc = ctl(epfd, op, c, fd, ev);
		lk_unlock(&ep_lock);
	}
	if (rc == DEMOTE) { /* takes locks that come before ours */
		conn_demote(c, fd);
		rc = REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, fd, ev);
	}
	conn_put(c);
	return rc;
}

/* ---- fork ---------------------------------------------------------------- */

void ep_fork_prepare(void)
{
	lk_lock(&ep_lock);
}

void ep_fork_parent(void)
{
	lk_unlock(&ep_lock);
}

/* The copy of another thread's work may be in the middle: the lists of active
 * members are made anew. What was armed is the parent's. */
void ep_fork_child(void)
{
	own();
	ds_own_unlock(&ep_lock); /* of ep_fork_prepare */
	ep_lock = (struct ds_lock){0};
	for (uint32_t i = 0; i < epi_used; i++) {
		epis[i].lock = (struct ds_lock){0};
		epis[i].sleepers = epis[i].naps = epis[i].followers = 0;
		epis[i].active_head = epis[i].active_tail = NULL;
		epis[i].nactive = 0;
	}
	m_fork_child();
}

/* ---- begin --------------------------------------------------------------- */

/* The core tells that s has got a bell. */
static void bell(struct ds_sock *s)
{
	struct conn *c = *ds_user(s);

	if (c)
		m_bell(c);
}

/* And that a thread has read it. */
static void rung(struct ds_sock *s)
{
	struct conn *c = *ds_user(s);

	if (c)
		ep_news(c);
}

static const struct ds_notices of_core = {bell, rung};
static const struct fd_notices of_table = {m_bell, m_active, m_forget, epi_dup, epi_close};

void ep_init(void)
{
	void *e = REAL(mmap)(NULL, EPIS * sizeof *epis, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (e == MAP_FAILED || !m_init())
		return;
	epis = e;
	own();
	ds_tell(&of_core);
	fd_tell(&of_table);
}

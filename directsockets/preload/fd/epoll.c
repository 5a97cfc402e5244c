#include "fd/epoll_int.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { EPIS = 1 << 16 };

static struct epi *epis;
static uint32_t epi_used;
static struct epi *epi_free;

/* ---- instances ----------------------------------------------------------- */

/* Makes room for instances and members, before the first; with ep_lock. False: no memory. */
static bool make_room(void)
{
	void *e = REAL(mmap, NULL, EPIS * sizeof *epis, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (e == MAP_FAILED)
		return false;
	if (!fd_table() || !m_init()) {
		REAL(munmap, e, EPIS * sizeof *epis);
		return false;
	}
	epis = e;
	return true;
}

struct epi *epi_make(int epfd)
{
	struct epi *e = epi_free;

	if (!epis && !make_room())
		return NULL;
	if (e)
		epi_free = e->next ? &epis[e->next - 1] : NULL;
	else if (epi_used < EPIS)
		e = &epis[epi_used++];
	else
		return NULL;
	e->epfd = epfd;
	e->closefd = -1;
	__atomic_store_n(&e->nfds, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&e->users, 1, __ATOMIC_ACQ_REL); /* not =: a late thread may hold a reference for a moment */
	e->owner = fd_process();
	e->sleepers = e->naps = e->joined = e->indirect = e->followers = e->reads = 0;
	e->dgrams = e->asleep = e->once = 0;
	e->live = e->looked = NULL;
	e->nested = e->holds = e->nobell = e->woken = e->others = e->unsettled = false;
	e->wakefd = -1;
	e->all = e->active_head = e->active_tail = NULL;
	e->nactive = 0;
	fd_set_epoll(epfd, e);
	return e;
}

void epi_new(int epfd)
{
	if (fd_is_sealed())
		return;
	lk_lock(&ep_lock);
	epi_make(epfd);
	lk_unlock(&ep_lock);
}

/* e has one more descriptor. */
static void epi_dup(struct epi *e)
{
	__atomic_fetch_add(&e->nfds, 1, __ATOMIC_ACQ_REL);
}

void epi_unused(struct epi *e)
{
	lk_lock(&ep_lock);
	if (__atomic_load_n(&e->users, __ATOMIC_ACQUIRE) == 0 && __atomic_load_n(&e->nfds, __ATOMIC_RELAXED) == 0) {
		__atomic_store_n(&e->nfds, -1, __ATOMIC_RELAXED);
		dgset_gone(e);
		lk_lock(&e->lock);
		while (e->all)
			m_free(e->all);
		lk_unlock(&e->lock);
		if (e->wakefd >= 0)
			ds_fd_close(e->wakefd);
		if (e->closefd >= 0)
			ds_syscall(SYS_close, e->closefd); /* not a cancellation point */
		e->next = epi_free ? (uint32_t)(epi_free - epis + 1) : 0;
		epi_free = e;
	}
	lk_unlock(&ep_lock);
}

/* fd, one of e's, is about to be closed. */
static void epi_close(struct epi *e, int fd)
{
	if (__atomic_load_n(&e->epfd, __ATOMIC_RELAXED) == fd)
		__atomic_store_n(&e->epfd, -1, __ATOMIC_RELAXED); /* the next epoll_ctl or epoll_wait by another descriptor of it sets this again */
	if (__atomic_sub_fetch(&e->nfds, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	/* A thread that waits in it goes on, as in the kernel. */
	int copy = __atomic_load_n(&e->users, __ATOMIC_ACQUIRE) > 1 ? fd_spare(fd) : NO_COPY;
	__atomic_store_n(&e->epfd, copy >= 0 ? copy : -1, __ATOMIC_RELAXED);
	__atomic_store_n(&e->closefd, copy, __ATOMIC_RELEASE);
	epi_put(e);
}

int epi_still_open(struct epi *e, int fd)
{
	int copy;

	while (!__atomic_load_n(&e->nfds, __ATOMIC_ACQUIRE)) {
		if ((copy = __atomic_load_n(&e->closefd, __ATOMIC_ACQUIRE)) != -1)
			return copy;
		ds_syscall(SYS_sched_yield); /* epi_close is about to make it */
	}
	for (unsigned i = 0; i < fd_tab_end; i++)
		if (word_epi(fd_word((int)i)) == e)
			return (int)i;
	return fd;
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

/* Has the members of c looked at again, except that of the instance `but` (NULL: all). With
 * ep_lock. */
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

void ep_blocked(struct conn *c)
{
	int saved = errno;

	if (!c->members)
		return;
	__atomic_fetch_add(&c->blocked, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&c->armed, __ATOMIC_SEQ_CST) > 0) /* perhaps not for room */
		ep_news(c);
	errno = saved;
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
		if (m->armed && m->had) { /* what its peer rang for may be nothing to report: PROMOTE, say */
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

/* ---- fork ---------------------------------------------------------------- */

void ep_fork_prepare(void)
{
	lk_lock(&ep_lock);
	dgset_fork_prepare();
}

void ep_fork_parent(void)
{
	dgset_fork_parent();
	lk_unlock(&ep_lock);
}

/* Another thread may have been changing the lists of active members, or of UDP sockets that are
 * awake: they are rebuilt. What was armed is the parent's. */
void ep_fork_child(void)
{
	dgset_fork_child();
	lk_unlock(&ep_lock); /* of ep_fork_prepare */
	ep_lock = (struct ds_lock){0};
	for (uint32_t i = 0; i < epi_used; i++) {
		epis[i].lock = (struct ds_lock){0};
		epis[i].asleep = 0;
		epis[i].live = epis[i].looked = NULL;
		epis[i].sleepers = epis[i].naps = epis[i].followers = 0;
		epis[i].active_head = epis[i].active_tail = NULL;
		epis[i].nactive = 0;
		epis[i].users = epis[i].nfds > 0; /* no other thread's call */
	}
	m_fork_child();
}

/* ---- begin --------------------------------------------------------------- */

static struct conn *conn_with(struct ds_life *l) { return (struct conn *)(void *)((char *)l - offsetof(struct conn, life)); }

/* The conn of s; NULL: it has none yet. */
static struct conn *conn_of(struct ds_sock *s)
{
	struct ds_life *l = ds_life_of(s);

	return l ? conn_with(l) : NULL;
}

/* conn/ reports that s has got a bell. */
static void bell(struct ds_sock *s)
{
	struct conn *c = conn_of(s);

	if (c)
		m_bell(c);
}

/* conn/ reports that a thread has read the bell of s. */
static void rung(struct ds_sock *s)
{
	struct conn *c = conn_of(s);

	if (c)
		ep_news(c);
}

/* What ep_init was given. */
static bool (*stays)(struct ds_sock *s, struct conn *c, int fd);

/* For ds_notices. */
static int still(struct ds_sock *s, int fd) { return conn_of(s) ? conn_still(conn_of(s), fd) : fd; }
static bool stay(struct ds_sock *s, int fd) { return stays(s, conn_of(s), fd); }
static int still_open(struct ds_life *l, int fd) { return conn_open(conn_with(l), fd); }

/* conn/ has moved a descriptor of its own. */
static void moved(int from, int to)
{
	lk_lock(&ep_lock);
	for (uint32_t i = 0; i < epi_used; i++)
		if (__atomic_load_n(&epis[i].nfds, __ATOMIC_RELAXED) > 0)
			epi_moved(&epis[i], from, to);
	lk_unlock(&ep_lock);
}

/* A receive has taken from the kernel what those who wait in d's sets may have slept for. */
static void due(struct ds_dgram *d)
{
	struct epi *waited[DS_DG_SETS];

	ds_critical_begin();
	for (int n = dgset_waited(d, waited); n > 0; n--) {
		dgset_kick(waited[n - 1]);
		epi_put(waited[n - 1]);
	}
	ds_critical_end();
}

static const struct ds_notices of_core = {bell, rung, still, still_open, moved, stay, due};
/* When a listener is closed, it stays announced for the uncounted ones that it has accepted. */
static const struct fd_notices of_table = {m_active, m_orphan, m_forget, m_native, epi_dup, epi_close, uncounted_settle_servers, dgset_forget, dgset_renumbered};

DS_START void ep_init(bool (*stay_by)(struct ds_sock *s, struct conn *c, int fd))
{
	stays = stay_by;
	ds_tell(&of_core);
	fd_tell(&of_table);
}

/* Members of epoll instances: their tags, their bells, and who has the bells. */
#include "fd/epoll_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>

/* A member that has had nothing to report in so many sleeps of its instance is idle, and stays
 * armed. The others are disarmed when a sleep ends: what comes while a thread is awake needs no
 * bell. */
enum { SLEEPS = 16 };

/* Further ones stay on TCP. Programs may limit their address space (vsftpd: to 200 MB), of which
 * this is a part. */
enum { MEMBERS = 1 << 18 };
_Static_assert(MEMBERS <= 1 << INDEX_BITS && MEMBERS * sizeof(struct member) <= 64 << 20, "members have places in tags, and leave room");

struct ds_lock ep_lock;
struct member *ep_place;
uint32_t ep_members;
static struct member *member_free;
uint64_t ep_family;
static uint64_t prefix; /* of tags */

/* A number that all processes have that come from one program by forks, and hardly another: from
 * what the kernel gave it. Else r. */
static uint64_t family_of_tree(uint64_t r)
{
	const void *given = (const void *)getauxval(AT_RANDOM);
	uint64_t w[2];

	if (!given)
		return r;
	memcpy(w, given, sizeof w);
	return (w[0] * 0x9e3779b97f4a7c15u ^ w[1] * 0xc2b2ae3d27d4eb4fu) >> 40;
}

/* Draws the upper bits of this process's tags; the family stays. With ep_lock. */
static void new_prefix(void)
{
	uint64_t r = 0;

	if (kernel_getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r)
		r = (uint64_t)time(NULL) * 0x9e3779b97f4a7c15u ^ (uint64_t)kernel_getpid() << 32 ^ (uintptr_t)&r;
	if (ep_family == 0)
		ep_family = (family_of_tree(r) & 0xffffff) | 0x10000; /* no pointer of a program looks like that */
	prefix = ep_family << FAMILY_SHIFT | r >> 53 << PROCESS_SHIFT;
}

bool m_init(void)
{
	void *m = REAL(mmap, NULL, MEMBERS * sizeof *ep_place, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (m == MAP_FAILED)
		return false;
	ep_place = m;
	new_prefix();
	return true;
}

/* In the child of a fork: other tags for what it adds; what was armed is the parent's. */
void m_fork_child(void)
{
	if (!ep_place)
		return;
	new_prefix();
	for (uint32_t i = 1; i <= ep_members; i++) {
		struct member *m = &ep_place[i];
		if (!m->e)
			continue;
		m->active = m->armed = m->listed = false;
		m->c->armed = 0;
		if (m->joined && !m->deleted)
			m_activate(m);
	}
}

uint64_t tag_of_wakefd(void) { return prefix; }

/* ---- who there is ---------------------------------------------------------- */

struct member *m_new(struct conn *c, struct epi *e, int fd, const struct epoll_event *ev)
{
	struct member *m = member_free;

	if (m)
		member_free = m->cnext;
	else if (ep_place && ep_members < MEMBERS - 1)
		m = &ep_place[__atomic_add_fetch(&ep_members, 1, __ATOMIC_RELAXED)];
	else
		return NULL;
	uint64_t gen = (m->tag >> GEN_SHIFT) + 1; /* after that of the last member there */
	m->c = c;
	m->fd = fd;
	m->events = ev->events;
	m->data = ev->data.u64;
	m->before = NOWHERE;
	m->bell = -1;
	memset(&m->kevents, 0, offsetof(struct member, got) - offsetof(struct member, kevents));
	m->eprev = NULL;
	m->tag = prefix | (gen & ((1u << GEN_BITS) - 1)) << GEN_SHIFT | (uint64_t)(m - ep_place) << INDEX_SHIFT;
	m->cnext = c->members;
	c->members = m;
	__atomic_store_n(&c->nmembers, c->nmembers + 1, __ATOMIC_RELAXED);
	m->enext = e->all;
	if (e->all)
		e->all->eprev = m;
	e->all = m;
	e->indirect++;
	__atomic_store_n(&m->e, e, __ATOMIC_RELAXED);
	m_entry(m);
	return m;
}

void m_free(struct member *m)
{
	struct epi *e = m->e;
	struct member **p = &m->c->members;

	m_disarm(m);
	m_passive(m);
	if (m->joined)
		__atomic_sub_fetch(&e->joined, 1, __ATOMIC_RELAXED);
	e->indirect -= !m->both_direct;
	while (*p && *p != m)
		p = &(*p)->cnext;
	if (*p)
		*p = m->cnext;
	__atomic_store_n(&m->c->nmembers, m->c->nmembers - 1, __ATOMIC_RELAXED);
	e->reads -= m->read;
	if (m->eprev)
		m->eprev->enext = m->enext;
	else
		e->all = m->enext;
	if (m->enext)
		m->enext->eprev = m->eprev;
	__atomic_store_n(&m->e, NULL, __ATOMIC_RELAXED);
	m->cnext = member_free;
	member_free = m;
}

/* ---- waking those who sleep in an instance, or on it --------------------- */

void epi_wake(struct epi *e)
{
	static const uint64_t one = 1;
	int saved = errno;

	if (e->wakefd < 0) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = tag_of_wakefd()};
		ds_eventfd_make(&e->wakefd);
		if (e->wakefd >= 0)
			REAL(epoll_ctl, epi_fd(e), EPOLL_CTL_ADD, e->wakefd, &ev);
	}
	if (e->wakefd >= 0 && !e->woken && REAL(write, e->wakefd, &one, sizeof one) == sizeof one)
		__atomic_store_n(&e->woken, true, __ATOMIC_RELAXED);
	errno = saved;
}

void epi_clear_wake(struct epi *e)
{
	uint64_t v;
	int saved = errno;

	if (!e->woken)
		return;
	__atomic_store_n(&e->woken, false, __ATOMIC_RELAXED);
	if (REAL(read, e->wakefd, &v, sizeof v) < 0)
		errno = saved;
}

void epi_nap(struct epi *e)
{
	if (epi_follows(e) && __atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) > 0 && __atomic_load_n(&e->naps, __ATOMIC_RELAXED) == 0)
		epi_wake(e);
}

/* ---- bells ------------------------------------------------------------------ */

void m_arm(struct member *m)
{
	/* One without a bell is active while it has events of the kernel's left. */
	if (m->armed || !m->joined || ds_bell(m->c->life.s) < 0)
		return;
	/* A member that asked for nothing still hears of the end of the peer. */
	unsigned ask = poll_plain(m->events) & (POLLIN | POLLOUT | POLLRDHUP);
	__atomic_fetch_add(&m->c->armed, 1, __ATOMIC_SEQ_CST); /* before blocked is read: ep_blocked */
	if ((m->events & EPOLLET) && !m->fresh && m->tx == __atomic_load_n(&m->c->blocked, __ATOMIC_SEQ_CST))
		ask &= ~(unsigned)POLLOUT; /* room is news only for a sender that ran out of it */
	m->had = ds_arm_sets(m->c->life.s, ask);
	m->armed = m->rings = true;
	m->follows = !m->had || ds_unheard(m->c->life.s, ask);
	m->e->followers += m->follows;
}

void m_disarm(struct member *m)
{
	if (!m->armed)
		return;
	ds_disarm_sets(m->c->life.s, m->had);
	m->armed = false;
	m->e->followers -= m->follows;
	__atomic_fetch_sub(&m->c->armed, 1, __ATOMIC_RELAXED);
}

bool m_rung(struct member *m)
{
	bool read = ds_rung_sets(m->c->life.s);

	m->rings = !read;
	if (read && !m->read && __atomic_load_n(&m->c->nmembers, __ATOMIC_RELAXED) > 1) {
		m->read = true;
		m->e->reads++;
	}
	m_dead_bell(m);
	return read;
}

bool epi_arm_all(struct epi *e)
{
	struct member *m, *next;
	bool found = false;

	if (!e->active_head)
		return false;
	for (m = e->active_head; m; m = m->anext)
		m_arm(m);
	ds_barrier();
	for (m = e->active_head; m; m = next) {
		next = m->anext;
		if (!m_quiet(m) && m_look(m))
			found = true; /* the next round finds it again */
		else if (m->disabled || (m->armed && ++m->sleeps > SLEEPS))
			m_passive(m);
	}
	return found;
}

void epi_disarm_all(struct epi *e)
{
	if (e->nested || __atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) > 0)
		return;
	for (struct member *m = e->active_head; m; m = m->anext)
		m_disarm(m);
}

void m_bell_out(struct member *m)
{
	int saved = errno;

	if (m->bell >= 0)
		REAL(epoll_ctl, epi_fd(m->e), EPOLL_CTL_DEL, m->bell, NULL);
	m->bell = -1;
	errno = saved;
}

/* m's bell has the number to, and still its old one, too. With e's lock. */
static void m_bell_moved(struct member *m, int to)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = m->tag | 1};

	m_bell_out(m);
	if (REAL(epoll_ctl, epi_fd(m->e), EPOLL_CTL_ADD, to, &ev) == 0)
		m->bell = to;
	else
		m->e->nobell = true;
}

void epi_moved(struct epi *e, int from, int to)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = tag_of_wakefd()};

	if (e->owner != fd_process()) /* what the kernel has is its maker's */
		return;
	lk_lock(&e->lock);
	if (e->wakefd == to) {
		REAL(epoll_ctl, epi_fd(e), EPOLL_CTL_DEL, from, NULL);
		REAL(epoll_ctl, epi_fd(e), EPOLL_CTL_ADD, to, &ev);
	}
	for (struct member *m = e->all; m; m = m->enext)
		if (m->bell == from)
			m_bell_moved(m, to);
	lk_unlock(&e->lock);
}

void m_dead_bell(struct member *m)
{
	if (ds_bell(m->c->life.s) < 0)
		m_bell_out(m);
}

void m_unlink(struct member *m)
{
	int saved = errno;

	if (!m->unlinked && !m->orphan)
		REAL(epoll_ctl, epi_fd(m->e), EPOLL_CTL_DEL, m->fd, NULL);
	m->unlinked = true;
	m_bell_out(m);
	errno = saved;
}

void m_attach(struct member *m)
{
	struct epi *e = m->e;
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = m->tag | 1};
	int saved = errno;

	if (m->joined)
		return;
	m->joined = m->rings = true;
	if (__atomic_add_fetch(&e->joined, 1, __ATOMIC_SEQ_CST) == 1)
		__atomic_store_n(&e->unsettled, true, __ATOMIC_RELAXED);
	if ((m->events & EPOLLEXCLUSIVE) && !m->orphan) { /* cannot be modified */
		struct epoll_event again = {.events = m->events & ~(uint32_t)EPOLLEXCLUSIVE, .data.u64 = m->tag};
		REAL(epoll_ctl, epi_fd(e), EPOLL_CTL_DEL, m->fd, NULL);
		REAL(epoll_ctl, epi_fd(e), EPOLL_CTL_ADD, m->fd, &again);
		m->events = again.events;
		m->kevents = again.events;
		m->tagged = true;
	} else if (!m->tagged && !m->orphan) { /* level-triggered: this reports nothing twice */
		m->tagged = true;
		m_modify(m);
	}
	m->bell = ds_bell(m->c->life.s);
	if (REAL(epoll_ctl, epi_fd(e), EPOLL_CTL_ADD, m->bell, &ev) != 0) {
		m->bell = -1;
		if (errno == EEXIST)
			m->c->doubled = true; /* the set has the socket by another descriptor too */
		else
			e->nobell = true;
	}
	m_activate(m);
	errno = saved;
}

void m_bell(struct conn *c)
{
	lk_lock(&ep_lock);
	c->cookie = conn_cookie(c);
	for (struct member *m = c->members; m; m = m->cnext) {
		if (m->deleted)
			continue;
		lk_lock(&m->e->lock);
		m_attach(m);
		/* No byte can have come over the segment yet: arming needs no look. */
		if (__atomic_load_n(&m->e->sleepers, __ATOMIC_RELAXED) > 0 || m->e->nested) {
			m_arm(m);
			ds_barrier();
			m_passive(m);
			epi_nap(m->e);
		}
		lk_unlock(&m->e->lock);
	}
	lk_unlock(&ep_lock);
}

void m_active(struct conn *c)
{
	lk_lock(&ep_lock);
	struct member *m = c->members;
	if (m && !m->cnext) {
		struct epi *e = m->e;
		lk_lock(&e->lock);
		if (!m->deleted && __atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) == 0 && !e->nested) {
			m_disarm(m);
			m_activate(m);
		}
		lk_unlock(&e->lock);
	}
	lk_unlock(&ep_lock);
}

/* May c's socket outlive this process's last descriptor of it: in another process, or in a call
 * that is under way? */
static bool may_be_shared(const struct conn *c)
{
	int state = conn_is(c);

	if (c->closefd >= 0 || c->life.gen != ds_gen)
		return true;
	if (state == CONN_KNOWN)
		return ds_plain(c->life.s);
	return (state != CONN_UNCOUNTED && state != CONN_SETTLING) || __atomic_load_n(&c->life.calls, __ATOMIC_RELAXED) > 0;
}

/* The kernel knows an entry by number and socket: when the number has gone, and a duplicate keeps
 * the socket open, nobody can change the entry any more, and to name it by the number would change
 * that of the next socket with it. So it gets all events that the program has asked for, under the
 * tag; what of them the shadow does not decide is left out when it reports. */
void m_orphan(struct conn *c, int fd)
{
	struct member *m, *next;

	if (!c->members)
		return;
	int saved = errno;
	lk_lock(&ep_lock);
	for (m = c->members; m; m = next) {
		struct epi *e = m->e;
		bool ours = e->owner == fd_process();

		next = m->cnext;
		if (m->fd != fd)
			continue;
		lk_lock(&e->lock);
		if (ours && !m->deleted && !(m->events & (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE))) {
			m->tagged = true;
			m_modify(m);
		}
		if (ours && m->deleted)
			m_unlink(m);
		m->orphan = true;
		lk_unlock(&e->lock);
	}
	lk_unlock(&ep_lock);
	errno = saved;
}

void m_forget(struct conn *c)
{
	int saved = errno;

	if (!c->members)
		return;
	lk_lock(&ep_lock);
	while (c->members) {
		struct member *m = c->members;
		struct epi *e = m->e;
		lk_lock(&e->lock);
		/* The kernel drops entries with the last descriptor of all processes; those
		 * that another process keeps alive would go on to report to a dead tag, and
		 * those that our own copy keeps alive what the program has closed. A child of
		 * vfork may keep it, but only until it has executed its program, or for one edge
		 * that nobody is told. */
		if (e->owner == fd_process()) {
			m_bell_out(m);
			bool stays = c->closefd >= 0 || (m->tagged && (m->joined || may_be_shared(c)));
			if (stays && !m->unlinked && !m->orphan)
				REAL(epoll_ctl, epi_fd(e), EPOLL_CTL_DEL, m->fd, NULL);
		}
		m_free(m);
		lk_unlock(&e->lock);
	}
	lk_unlock(&ep_lock);
	errno = saved;
}

void m_native(struct conn *c)
{
	int saved = errno;

	lk_lock(&ep_lock);
	while (c->members) {
		struct member *m = c->members;
		struct epi *e = m->e;
		lk_lock(&e->lock);
		if (e->owner == fd_process() && m->deleted) {
			m_unlink(m);
		} else if (e->owner == fd_process()) {
			m_bell_out(m);
			m_untag(m);
		}
		m_free(m);
		lk_unlock(&e->lock);
	}
	lk_unlock(&ep_lock);
	errno = saved;
}

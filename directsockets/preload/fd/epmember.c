/* Members of epoll instances: what is told of them, their bells and tags. */
#include "fd/epoll_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>

/* A member that slept through so many sleeps of its instance stays armed: it is idle. The others are
 * disarmed when a sleep ends, so that what else comes at that time needs no bell. */
enum { SLEEPS = 16 };

enum { MEMBERS = 1 << 20, TAG_BITS = 24 };

static struct member *members;
static uint32_t member_used = 1; /* member 0 is the kick */
static struct member *member_free;
static uint64_t prefix, family; /* of tags: family the upper part, for all processes of one fork tree */

static void new_prefix(void)
{
	uint64_t r = 0;

	if (getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r)
		r = (uint64_t)time(NULL) * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid() << 32 ^ (uintptr_t)&r;
	if (family == 0)
		family = (r & 0xffffff) | 0x10000; /* no address of a program looks like that */
	prefix = family << 40 | (r >> 48) << TAG_BITS;
}

bool m_init(void)
{
	void *m = mmap(NULL, MEMBERS * sizeof *members, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (m == MAP_FAILED)
		return false;
	members = m;
	new_prefix();
	return true;
}

/* In the child of a fork: other tags for what it adds; what was armed is the parent's. */
void m_fork_child(void)
{
	if (!members)
		return;
	new_prefix();
	for (uint32_t i = 1; i < member_used; i++) {
		struct member *m = &members[i];
		if (!m->e)
			continue;
		m->active = m->armed = false;
		m->c->armed = 0;
		if (m->tagged && !m->deleted)
			m_activate(m);
	}
}

/* ---- members ------------------------------------------------------------- */

struct member *m_find(struct conn *c, struct epi *e, int fd)
{
	struct member *m = c->members;

	while (m && (m->e != e || m->fd != fd))
		m = m->cnext;
	return m;
}

struct member *m_new(struct conn *c, struct epi *e, int fd, const struct epoll_event *ev)
{
	struct member *m = member_free;

	if (m)
		member_free = m->cnext;
	else if (members && member_used < MEMBERS)
		m = &members[member_used++];
	else
		return NULL;
	*m = (struct member){.e = e, .c = c, .fd = fd, .events = ev->events, .data = ev->data.u64, .kevents = ev->events, .bell = -1, .fresh = true};
	m->tag = prefix | (uint64_t)(m - members) << 1;
	m->cnext = c->members;
	c->members = m;
	m->enext = e->all;
	if (e->all)
		e->all->eprev = m;
	e->all = m;
	return m;
}

/* Both locks are held; the kernel's entries are the caller's. */
void m_free(struct member *m)
{
	struct epi *e = m->e;
	struct member **p = &m->c->members;

	lk_lock(&e->lock);
	m_disarm(m);
	m_passive(m);
	if (m->tagged)
		e->tagged--;
	while (*p && *p != m)
		p = &(*p)->cnext;
	if (*p)
		*p = m->cnext;
	if (m->eprev)
		m->eprev->enext = m->enext;
	else
		e->all = m->enext;
	if (m->enext)
		m->enext->eprev = m->eprev;
	m->e = NULL;
	m->tag = 0;
	m->cnext = member_free;
	member_free = m;
	lk_unlock(&e->lock);
}

bool tag_is_ours(uint64_t data)
{
	return family != 0 && data >> 40 == family;
}

bool tag_is_kick(uint64_t data)
{
	return (data & ((1 << TAG_BITS) - 1)) == 0;
}

struct member *m_by_tag(uint64_t data)
{
	uint32_t i = (uint32_t)(data & ((1 << TAG_BITS) - 1)) >> 1;

	return tag_is_ours(data) && i < member_used ? &members[i] : NULL;
}

void m_activate(struct member *m)
{
	m->vain = m->sleeps = 0;
	if (m->active)
		return;
	m->active = true;
	m->anext = NULL;
	m->aprev = m->e->active_tail;
	if (m->aprev)
		m->aprev->anext = m;
	else
		m->e->active_head = m;
	m->e->active_tail = m;
}

void m_passive(struct member *m)
{
	if (!m->active)
		return;
	m->active = false;
	if (m->aprev)
		m->aprev->anext = m->anext;
	else
		m->e->active_head = m->anext;
	if (m->anext)
		m->anext->aprev = m->aprev;
	else
		m->e->active_tail = m->aprev;
}

void m_arm(struct member *m)
{
	if (m->armed || ds_bell(m->c->s) < 0)
		return;
	/* A member that asked for nothing still hears of the end of the peer. */
	unsigned ask = poll_plain(m->events) & (POLLIN | POLLOUT | POLLRDHUP);
	if ((m->events & EPOLLET) && m->tx == __atomic_load_n(&m->c->blocked, __ATOMIC_RELAXED))
		ask &= ~(unsigned)POLLOUT; /* room is news only for who ran out of it */
	m->had = ds_arm_as(m->c->s, ask, epi_who(m->e));
	m->armed = true;
	m->e->followers += !m->had;
	__atomic_fetch_add(&m->c->armed, 1, __ATOMIC_RELAXED);
}

void m_disarm(struct member *m)
{
	if (!m->armed)
		return;
	ds_disarm_as(m->c->s, m->had, epi_who(m->e));
	m->armed = false;
	m->e->followers -= !m->had;
	__atomic_fetch_sub(&m->c->armed, 1, __ATOMIC_RELAXED);
}

void m_kernel(struct member *m, unsigned want)
{
	uint32_t flags = m->events & (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP);
	uint32_t k = (m->events & want & ~(uint32_t)(EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)) | flags;

	if ((k & (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLRDNORM | EPOLLWRNORM)) == 0)
		k |= EPOLLET; /* only the end of the connection: tell it once, kseen keeps it */
	if (m->disabled)
		k = EPOLLET;
	if (k == m->kevents && m->tagged)
		return;
	struct epoll_event ev = {.events = k, .data.u64 = m->tag};
	int saved = errno;
	if (REAL(epoll_ctl)(m->e->epfd, EPOLL_CTL_MOD, m->fd, &ev) == 0)
		m->kevents = k;
	errno = saved;
}

void m_dead_bell(struct member *m)
{
	int saved = errno;

	if (m->bell >= 0 && ds_bell(m->c->s) < 0) {
		REAL(epoll_ctl)(m->e->epfd, EPOLL_CTL_DEL, m->bell, NULL);
		m->bell = -1;
	}
	errno = saved;
}

/* Synonyms and the things that only the kernel knows are asked of it. */
static inline unsigned kernel_mask(unsigned kernel)
{
	return poll_synonyms(kernel, POLLRDNORM | POLLWRNORM) | POLLPRI | POLLRDBAND | POLLWRBAND | POLLMSG;
}

uint32_t m_look(struct member *m, uint32_t kernel)
{
	struct ds_sock *s = m->c->s;

	if (m->disabled)
		return 0;
	/* The edges before what holds: a message that comes in between is found ready now or told by the next
	 * look, but never counted as told and not seen. */
	struct ds_edges g = {0, 0};
	uint64_t blocked = __atomic_load_n(&m->c->blocked, __ATOMIC_RELAXED);
	if (m->events & EPOLLET)
		ds_edges(s, &g);
	struct ds_ready r = ds_ready(s, conn_fd(m->c), poll_plain(m->events) | POLLHUP | POLLERR);
	uint32_t mask = (m->events & 0xffff) | EPOLLERR | EPOLLHUP;
	m->kseen |= kernel & (EPOLLERR | EPOLLHUP);
	uint32_t now = poll_synonyms(r.now, m->events) & mask;
	if (m->events & EPOLLET) {
		bool news = m->fresh || g.rx != m->rx;
		if (blocked != m->tx && (now & EPOLLOUT)) {
			news = true;
			m->tx = blocked;
		}
		m->rx = g.rx;
		if (!news)
			now = 0;
	}
	uint32_t shadow = (kernel | ((m->events & EPOLLET) && !m->fresh ? 0 : m->kseen)) & kernel_mask(r.kernel) & mask;
	if (m->tagged)
		m_kernel(m, kernel_mask(r.kernel));
	if (shadow && (m->events & EPOLLET))
		now = poll_synonyms(r.now, m->events) & mask; /* an edge tells all that holds */
	m->fresh = false;
	return now | shadow;
}

void m_told(struct member *m)
{
	m->stamp = m->e->seq;
	if (m->events & EPOLLONESHOT) {
		m->disabled = true;
		m_kernel(m, 0);
	}
}

void epi_kick(struct epi *e)
{
	static const uint64_t one = 1;
	int saved = errno;

	if (e->kick < 0) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = prefix};
		int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		e->kick = fd < 0 ? -1 : REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 512);
		if (fd >= 0)
			REAL(close)(fd);
		if (e->kick >= 0)
			REAL(epoll_ctl)(e->epfd, EPOLL_CTL_ADD, e->kick, &ev);
	}
	if (e->kick >= 0 && !e->kicked && REAL(write)(e->kick, &one, sizeof one) == sizeof one)
		e->kicked = true;
	errno = saved;
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
		bool fresh = m->fresh;
		uint64_t rx = m->rx, tx = m->tx;
		if (m_look(m, 0) != 0) { /* not told yet: the next scan finds it again */
			m->fresh = fresh;
			m->rx = rx;
			m->tx = tx;
			found = true;
		} else if (m->disabled || (m->armed && ++m->sleeps > SLEEPS)) {
			m_passive(m);
		}
	}
	return found;
}

void epi_wake(struct epi *e)
{
	if (e->nested || __atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) > 0)
		return;
	for (struct member *m = e->active_head; m; m = m->anext)
		m_disarm(m);
}

/* ---- attaching bells ------------------------------------------------------ */

/* Both locks are held. The member's conn has a bell. */
void m_attach(struct member *m)
{
	struct epi *e = m->e;
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = m->tag | 1};
	int saved = errno;

	if (!m->tagged) {
		m->tagged = true;
		e->tagged++;
	}
	if (m->events & EPOLLEXCLUSIVE) { /* cannot be modified */
		struct epoll_event again = {.events = m->events & ~(uint32_t)EPOLLEXCLUSIVE, .data.u64 = m->tag};
		REAL(epoll_ctl)(e->epfd, EPOLL_CTL_DEL, m->fd, NULL);
		REAL(epoll_ctl)(e->epfd, EPOLL_CTL_ADD, m->fd, &again);
		m->events &= ~(uint32_t)EPOLLEXCLUSIVE;
	}
	m->kevents = ~0u;
	m_kernel(m, ~0u);
	m->bell = ds_bell(m->c->s);
	if (REAL(epoll_ctl)(e->epfd, EPOLL_CTL_ADD, m->bell, &ev) != 0) {
		m->bell = -1;
		if (errno == EEXIST)
			m->c->twins = true; /* the socket is in there by another descriptor too */
		else
			e->nobell = true;
	}
	m_activate(m);
	errno = saved;
}

void epi_news(struct epi *e)
{
	if ((__atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) > 0 || e->nested) && epi_arm_all(e))
		epi_kick(e);
}

void ds_hook_bell(struct ds_sock *s)
{
	struct conn *c = *ds_user(s);
	socklen_t len = sizeof c->cookie;

	if (!c)
		return;
	lk_lock(&ep_lock);
	if (c->cookie == 0)
		REAL(getsockopt)(conn_fd(c), SOL_SOCKET, SO_COOKIE, &c->cookie, &len);
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
		}
		lk_unlock(&m->e->lock);
	}
	lk_unlock(&ep_lock);
}

/* Each instance takes a dead bell out when it hears it: m_dead_bell. */
void ds_hook_bell_gone(struct ds_sock *s, int bell)
{
	(void)s;
	(void)bell;
}

void ep_active(struct conn *c)
{
	lk_lock(&ep_lock);
	struct member *m = c->members;
	if (m && !m->cnext && !m->deleted) {
		struct epi *e = m->e;
		lk_lock(&e->lock);
		if (__atomic_load_n(&e->sleepers, __ATOMIC_RELAXED) == 0 && !e->nested) {
			m_disarm(m);
			m_activate(m);
		}
		lk_unlock(&e->lock);
	}
	lk_unlock(&ep_lock);
}

void ep_forget(struct conn *c)
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
		 * that another process keeps alive would go on to report to a dead tag. */
		if (e->pid == getpid()) {
			if (m->bell >= 0)
				REAL(epoll_ctl)(e->epfd, EPOLL_CTL_DEL, m->bell, NULL);
			if (m->tagged)
				REAL(epoll_ctl)(e->epfd, EPOLL_CTL_DEL, m->fd, NULL);
		}
		m_free(m);
		lk_unlock(&e->lock);
	}
	lk_unlock(&ep_lock);
	errno = saved;
}

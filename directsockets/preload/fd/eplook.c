/* What to report for one member, from the segment and from what the kernel reports of the shadow;
 * levels and edges. */
#include "fd/epoll_int.h"

#include <errno.h>
#include <sys/syscall.h>

/* Bits that are not events. */
enum { FLAGS = (int)(EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE) };
enum { FOR_BYTES = EPOLLIN | EPOLLPRI | EPOLLRDNORM | EPOLLRDBAND };
enum { READABLE = EPOLLIN | EPOLLRDNORM, WRITABLE = EPOLLOUT | EPOLLWRNORM };

/* The events to ask the kernel for: these, their synonyms, and those that only the kernel knows. */
static inline uint32_t kernel_mask(unsigned kernel)
{
	return poll_synonyms(kernel, POLLRDNORM | POLLWRNORM) | POLLPRI | POLLRDBAND | POLLWRBAND | POLLMSG;
}

/* What the program asks for, with what epoll always reports. */
static inline uint32_t asked(const struct member *m)
{
	return (m->events & ~(uint32_t)FLAGS) | EPOLLERR | EPOLLHUP;
}

/* ---- the kernel's entry ------------------------------------------------------ */

/* Has the kernel's entry ask for events, under the member's tag: as epoll_ctl. An orphan's stays as
 * it is. With e's lock. */
static int change(struct member *m, uint32_t events)
{
	if (m->orphan)
		return 0;
	struct epoll_event ev = {.events = events, .data.u64 = m->tag};
	int rc = REAL(epoll_ctl, epi_fd(m->e), EPOLL_CTL_MOD, m->fd, &ev);

	if (rc == 0)
		m->kevents = events;
	return rc;
}

int m_modify(struct member *m)
{
	return change(m, m->events & ~(uint32_t)EPOLLEXCLUSIVE);
}

void m_untag(struct member *m)
{
	uint32_t events = m->disabled ? m->events & (EPOLLET | EPOLLONESHOT) : m->events & ~(uint32_t)EPOLLEXCLUSIVE;
	struct epoll_event ev = {.events = events, .data.u64 = m->data};

	if (m->tagged && !m->orphan)
		REAL(epoll_ctl, epi_fd(m->e), EPOLL_CTL_MOD, m->fd, &ev);
}

/* Has the kernel's entry ask for want, what the shadow decides. An edge-triggered entry stays as it
 * is: a change would itself be an edge, and events that the shadow does not decide are rare. An
 * entry that has fired stays, too. */
static void ask_kernel(struct member *m, uint32_t want)
{
	uint32_t flags = m->events & (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP), k = (m->events & want & ~(uint32_t)FLAGS) | flags;

	if (m->disabled || !m->tagged || (flags & (EPOLLET | EPOLLONESHOT)) == EPOLLET)
		return;
	if ((k & (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLRDNORM | EPOLLWRNORM)) == 0)
		k |= EPOLLET; /* only the end of the connection: reported once, kseen keeps it */
	if (k == m->kevents)
		return;
	int saved = errno;
	change(m, k);
	errno = saved;
}

void m_entry(struct member *m)
{
	m->deleted = m->disabled = false;
	m->kpend = 0;
	m->since = ds_ticks();
	if (!(m->events & EPOLLET) || !m->joined)
		return;
	/* The edges before what holds: a message that comes in between is found ready now or by the
	 * next look, but never counted as reported without being seen. */
	m->rx = ds_edges(m->c->life.s);
	m->fresh = true;
}

/* ---- looking ----------------------------------------------------------------- */

/* Notes which directions are direct, after a look. With e's lock. */
static void looked(struct member *m)
{
	int direct = ds_direct(m->c->life.s);
	bool both_direct = direct == 3;

	m->e->indirect += m->both_direct - both_direct;
	m->both_direct = both_direct;
	m->sends = direct & 1;
}

bool m_quiet(const struct member *m)
{
	return m->both_direct && !m->kpend && !m->kseen && !m->fresh && !(m->events & WRITABLE) && ds_quiet(m->c->life.s);
}

/* If the kernel's entry has fired (EPOLLONESHOT) and there is nothing to report, has it set
 * again. */
static inline void fired(struct member *m)
{
	if (m->kpend && (m->events & EPOLLONESHOT))
		m->kevents = ~0u;
}

/* Which of events, POLLERR and POLLHUP the kernel tells of the shadow. */
static uint32_t shadow_says(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	struct timespec none = {0, 0};
	int saved = errno;
	uint32_t says = ds_syscall(SYS_ppoll, &p, 1, &none, NULL, 0) > 0 ? (uint32_t)(uint16_t)p.revents : 0;

	errno = saved;
	return says & ((uint32_t)events | POLLERR | POLLHUP);
}

/* Does the shadow have room? If not, the kernel reports it later. */
static bool shadow_room(int fd) { return shadow_says(fd, POLLOUT) & POLLOUT; }

/* What a level-triggered member has to report. With e's lock. */
static uint32_t look_level(struct member *m)
{
	unsigned more = m->kpend & (EPOLLERR | EPOLLRDHUP) ? ds_shadow_says(m->c->life.s, conn_fd(m->c), m->kpend) : 0;
	struct ds_ready r = ds_ready(m->c->life.s, conn_fd(m->c), poll_plain(m->events) | POLLHUP | POLLERR);
	uint32_t kernel = kernel_mask(r.kernel), now = poll_synonyms(r.now, m->events) | (more & READABLE);

	m->kseen |= m->kpend & (EPOLLERR | EPOLLHUP);
	if (m->kseen || ds_left(m->c->life.s)) { /* an error is told until it is read */
		m->kseen = shadow_says(conn_fd(m->c), POLLRDHUP);
		m->kpend = (m->kpend & ~(uint32_t)(EPOLLERR | EPOLLHUP | EPOLLRDHUP)) | m->kseen;
		if ((m->kseen & POLLRDHUP) && ds_left(m->c->life.s))
			now |= READABLE;
	}
	uint32_t got = (now | (m->kpend & kernel)) & asked(m);
	m->kleft = 0;
	if (!got)
		fired(m);
	if (!got || !(m->events & EPOLLONESHOT))
		m->kpend = 0; /* the kernel says so again */
	ask_kernel(m, kernel);
	looked(m);
	return got;
}

/* Are there bytes to be read on the shadow? */
static bool shadow_unread(struct ds_sock *s, int fd)
{
	int n = 0, saved = errno;

	if (ds_fionread(s, fd, &n) < 0)
		n = 0;
	errno = saved;
	return n > 0;
}

/* What an edge-triggered member has to report. Edges come from two places, and the program must see
 * each once, whatever is direct meanwhile. The kernel's entry of the shadow is as the program made
 * it: what it says counts if the shadow decides it. What it says about reading while the segment
 * decides (the end of the connection, before the segment's SHUTDOWN was seen) is kept until the
 * shadow does. On the segment a message is an edge, even while earlier bytes are unread on the
 * shadow, and so is room for a sender that had none. */
static uint32_t look_edge(struct member *m)
{
	struct ds_sock *s = m->c->life.s;
	int fd = conn_fd(m->c);

	if (m->kpend & (EPOLLERR | EPOLLRDHUP))
		ds_shadow_says(s, fd, m->kpend);
	uint64_t edges = ds_edges(s), blocked = __atomic_load_n(&m->c->blocked, __ATOMIC_RELAXED);
	struct ds_ready r = ds_ready(s, fd, poll_plain(m->events) | POLLHUP | POLLERR);
	uint32_t kernel = kernel_mask(r.kernel), now = poll_synonyms(r.now, m->events), shadow = m->kpend & kernel;
	uint64_t change = edges ^ m->rx;
	/* As in the kernel: bytes wake those that wait for them, the end wakes all. */
	bool arrived = (change << (64 - DS_EDGE_ENDS) && (m->events & FOR_BYTES)) || change >> DS_EDGE_ENDS, sent = m->sends;

	looked(m);
	if (sent && !m->sends && blocked != m->tx)
		m->stranded = true; /* the shadow has never been full, so the kernel need not report room there */
	if (arrived && (kernel & EPOLLIN) && shadow_unread(s, fd))
		now |= READABLE;
	if (m->stranded && (kernel & EPOLLOUT) && (m->stranded = shadow_room(fd)))
		shadow |= WRITABLE;
	shadow &= asked(m) & ~(now & EPOLLRDHUP);
	now &= asked(m);
	bool news = m->fresh || arrived || (blocked != m->tx && (now & WRITABLE));
	m->kleft = m->kpend & ~kernel & ~(uint32_t)WRITABLE;
	if (ds_left(s) && (now & EPOLLIN)) /* that tells of all that is there */
		m->kleft &= ~(uint32_t)READABLE;
	m->next_rx = edges;
	if (!shadow && !(news && now)) {
		fired(m);
		m->kpend = m->kleft;
		ask_kernel(m, kernel);
		return 0;
	}
	ask_kernel(m, kernel);
	if ((asked(m) & kernel & EPOLLOUT) && shadow_room(fd))
		shadow |= asked(m) & WRITABLE; /* an edge reports all that holds */
	m->next_tx = (now | shadow) & WRITABLE ? blocked : m->tx;
	return now | shadow;
}

/* Would look_level say that there is something to be read, and nothing else, and change nothing?
 * That is what most looks find. The kernel's entry is as ask_kernel leaves it then. */
static inline bool only_bytes(struct member *m)
{
	return m->events == EPOLLIN && m->kevents == EPOLLET && m->both_direct && !m->kpend && !m->kseen && ds_only_data(m->c->life.s);
}

uint32_t m_look(struct member *m)
{
	if (m->disabled || m->deleted)
		return m->got = m->kpend = 0;
	if (!m->joined) {
		m->kleft = 0;
		m->got = m->kpend & asked(m);
		m->next_tx = m->got & WRITABLE ? __atomic_load_n(&m->c->blocked, __ATOMIC_RELAXED) : m->tx;
		return m->got;
	}
	if (only_bytes(m)) {
		m->kleft = 0;
		return m->got = EPOLLIN;
	}
	m->got = m->events & EPOLLET ? look_edge(m) : look_level(m);
	return m->got;
}

void m_told(struct member *m, uint64_t now)
{
	if (m->events & EPOLLET) {
		m->rx = m->joined ? m->next_rx : m->rx;
		m->tx = m->next_tx;
		m->stranded = m->stranded && !(m->got & WRITABLE);
	}
	m->fresh = false;
	m->kpend = m->kleft;
	m->since = now;
	if (m->events & EPOLLONESHOT)
		m->disabled = true;
}

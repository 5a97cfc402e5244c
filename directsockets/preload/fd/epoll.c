#include "segment/arena.h"
#include "fd/epoll_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>

enum { EPIS = 1 << 16 };

struct lock ep_lock;
static struct epi *epis;
static uint32_t epi_used;
static struct epi *epi_free;
static __thread int own_tid;
static pid_t own_pid;

void ep_init(void)
{
	void *e = mmap(NULL, EPIS * sizeof *epis, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (e == MAP_FAILED || !m_init())
		return;
	epis = e;
	own_pid = getpid();
}

/* ---- locks --------------------------------------------------------------- */

void lk_lock(struct lock *l)
{
	if (own_tid == 0)
		own_tid = (int)syscall(SYS_gettid);
	if (__atomic_load_n(&l->owner, __ATOMIC_RELAXED) == own_tid) {
		l->depth++;
		return;
	}
	for (int n = 0, zero = 0; !__atomic_compare_exchange_n(&l->owner, &zero, own_tid, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED); zero = 0, n++) {
		if (n % 64 == 63)
			sched_yield();
		else
			ds_pause();
	}
}

void lk_unlock(struct lock *l)
{
	if (l->depth > 0)
		l->depth--;
	else
		__atomic_store_n(&l->owner, 0, __ATOMIC_RELEASE);
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
	e->nfds = 1;
	e->users = 1;
	e->pid = getpid();
	e->sleepers = e->tagged = e->followers = 0;
	e->nested = e->nobell = e->kicked = e->odd = e->others = false;
	e->kick = -1;
	e->all = e->active_head = e->active_tail = NULL;
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

void epi_dup(struct epi *e)
{
	__atomic_fetch_add(&e->nfds, 1, __ATOMIC_ACQ_REL);
}

void epi_put(struct epi *e)
{
	if (__atomic_sub_fetch(&e->users, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	lk_lock(&ep_lock);
	if (e->users == 0 && e->nfds == 0) {
		e->nfds = -1;
		while (e->all)
			m_free(e->all);
		if (e->kick >= 0)
			REAL(close)(e->kick);
		e->next = epi_free ? (uint32_t)(epi_free - epis + 1) : 0;
		epi_free = e;
	}
	lk_unlock(&ep_lock);
}

void epi_close(struct epi *e, int fd)
{
	if (__atomic_load_n(&e->epfd, __ATOMIC_RELAXED) == fd)
		__atomic_store_n(&e->epfd, -1, __ATOMIC_RELAXED); /* another descriptor of it may be left: see ep_fd */
	if (__atomic_sub_fetch(&e->nfds, 1, __ATOMIC_ACQ_REL) == 0)
		epi_put(e);
}

/* Whose bell it is while the instance has it armed. */
uint32_t epi_who(const struct epi *e)
{
	return (uint32_t)(own_pid & DS_TID_MASK) | (uint32_t)((e - epis) % 255 + 1) << 22;
}

/* ---- epoll_ctl ------------------------------------------------------------ */

/* Was e made by another process, that still has it? The kernel's list is one for all of them, but each knows only its
 * own members: they would be told of what this process adds by a tag that says nothing to them. */
static bool of_others(struct epi *e)
{
	pid_t me = getpid();

	if (e->pid == me)
		return false;
	if (!ds_tid_dead((uint32_t)e->pid))
		return true;
	e->pid = me; /* the rest of a program that has become a daemon */
	return false;
}

static int ctl_add(struct epi *e, int epfd, struct conn *c, int fd, struct epoll_event *ev)
{
	struct member *m = of_others(e) ? NULL : m_new(c, e, fd, ev);
	int rc;

	if (!m) { /* nobody could tell where its bell belongs: it stays on TCP, with the program's own data */
		conn_demote(c, fd);
		return REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, fd, ev);
	}
	bool bell = c->state == CONN_UP && ds_bell(c->s) >= 0;
	rc = REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, fd, ev);
	if (rc != 0) {
		int saved = errno;
		m_free(m);
		errno = saved;
	} else if (bell) {
		lk_lock(&e->lock);
		m_attach(m);
		epi_news(e);
		lk_unlock(&e->lock);
	}
	return rc;
}

static int ctl_mod(struct member *m, int epfd, struct epoll_event *ev)
{
	struct epi *e = m->e;
	int rc = 0;

	lk_lock(&e->lock);
	if (!m->tagged || (ev->events & EPOLLEXCLUSIVE)) {
		rc = REAL(epoll_ctl)(epfd, EPOLL_CTL_MOD, m->fd, ev);
		if (rc == 0 && !m->tagged) {
			m->events = ev->events;
			m->data = ev->data.u64;
		}
		lk_unlock(&e->lock);
		return rc;
	}
	m->events = ev->events;
	m->data = ev->data.u64;
	m->disabled = false;
	m->fresh = true;
	m_disarm(m);
	m_activate(m);
	/* An entry that has to fire again, by edge or once more, is set again. */
	if (m->events & (EPOLLET | EPOLLONESHOT))
		m->kevents = ~0u;
	m_kernel(m, ds_ready(m->c->s, conn_fd(m->c), poll_plain(m->events)).kernel | POLLPRI | POLLRDNORM | POLLWRNORM);
	epi_news(e);
	lk_unlock(&e->lock);
	return rc;
}

static void unlink_entries(struct member *m, int epfd)
{
	if (m->bell >= 0)
		REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, m->bell, NULL);
	m->bell = -1;
}

/* Programs that take a socket out whenever they have nothing to ask (redis-benchmark twice for each request)
 * should not pay for it: if the kernel has nothing to tell of a socket but its end, its entries stay. They go
 * when they report. */
static int ctl_del(struct member *m, int epfd)
{
	struct epi *e = m->e;

	if (m->tagged && m->kevents == EPOLLET && m->bell >= 0 && m->c->members == m && !m->cnext && !e->nested && ds_direct(m->c->s) == 3) {
		lk_lock(&e->lock);
		m_disarm(m);
		m_passive(m);
		m->deleted = true;
		lk_unlock(&e->lock);
		return 0;
	}
	int rc = REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, m->fd, NULL);
	if (rc == 0) {
		unlink_entries(m, epfd);
		m_free(m);
	}
	return rc;
}

/* The other half of ctl_del: the socket comes back. False: not by this descriptor, or its entries went. */
static bool ctl_revive(struct member *m, int epfd, struct epoll_event *ev)
{
	struct epi *e = m->e;

	if (m->unlinked || (ev->events & EPOLLEXCLUSIVE)) {
		if (!m->unlinked) {
			REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, m->fd, NULL);
			unlink_entries(m, epfd);
		}
		m_free(m);
		return false;
	}
	lk_lock(&e->lock);
	m->deleted = m->disabled = false;
	m->fresh = true;
	m->stamp = e->seq - 1;
	m->events = ev->events;
	m->data = ev->data.u64;
	m->kseen = 0;
	m_activate(m);
	if (m->events & (EPOLLET | EPOLLONESHOT))
		m->kevents = ~0u;
	m_kernel(m, ds_ready(m->c->s, conn_fd(m->c), poll_plain(m->events) | POLLHUP | POLLERR).kernel | POLLPRI | POLLRDNORM | POLLWRNORM);
	epi_news(e);
	lk_unlock(&e->lock);
	return true;
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

int ep_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct epi *inner = word_epi(fd_word(fd));
	struct conn *c = conn_get(fd);
	int rc;

	if (inner && op == EPOLL_CTL_ADD) {
		__atomic_store_n(&inner->nested, true, __ATOMIC_SEQ_CST);
		epi_settle(inner);
	}
	if (!c && op == EPOLL_CTL_ADD && ev && !fd_vforked())
		c = adopt(fd);
	if (!c)
		return REAL(epoll_ctl)(epfd, op, fd, ev);
	if ((!ev && op != EPOLL_CTL_DEL) || c->state == CONN_PLAIN) {
		rc = REAL(epoll_ctl)(epfd, op, fd, ev);
		conn_put(c);
		return rc;
	}
	lk_lock(&ep_lock);
	struct epi *e = word_epi(fd_word(epfd));
	/* An instance made behind our back: only such says ENOENT here. */
	if (!e && op == EPOLL_CTL_ADD && fd_word(epfd) == 0 && REAL(epoll_ctl)(epfd, EPOLL_CTL_MOD, fd, ev) != 0 && errno == ENOENT)
		e = epi_make(epfd);
	struct member *m = e ? m_find(c, e, fd) : NULL;
	if (e && __atomic_load_n(&e->epfd, __ATOMIC_RELAXED) < 0)
		__atomic_store_n(&e->epfd, epfd, __ATOMIC_RELAXED);
	struct member *left = c->members; /* one that was deleted is the only one of its conn */
	if (left && left->deleted && (op == EPOLL_CTL_ADD || left == m)) {
		if (left != m || op == EPOLL_CTL_ADD) {
			struct epi *of = left->e;
			if (left == m && ctl_revive(m, epfd, ev)) {
				lk_unlock(&ep_lock);
				conn_put(c);
				return 0;
			}
			if (left != m) {
				if (!left->unlinked) {
					REAL(epoll_ctl)(of->epfd, EPOLL_CTL_DEL, left->fd, NULL);
					unlink_entries(left, of->epfd);
				}
				m_free(left);
			}
			m = NULL;
		} else {
			lk_unlock(&ep_lock);
			conn_put(c);
			errno = ENOENT;
			return -1;
		}
	}
	if (e && op == EPOLL_CTL_ADD && !m)
		rc = ctl_add(e, epfd, c, fd, ev);
	else if (m && op == EPOLL_CTL_MOD)
		rc = ctl_mod(m, epfd, ev);
	else if (m && op == EPOLL_CTL_DEL)
		rc = ctl_del(m, epfd);
	else
		rc = REAL(epoll_ctl)(epfd, op, fd, ev);
	lk_unlock(&ep_lock);
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
	own_tid = 0;
	own_pid = getpid();
	ep_lock = (struct lock){0, 0};
	for (uint32_t i = 0; i < epi_used; i++) {
		epis[i].lock = (struct lock){0, 0};
		epis[i].sleepers = epis[i].followers = 0;
		epis[i].active_head = epis[i].active_tail = NULL;
	}
	m_fork_child();
}

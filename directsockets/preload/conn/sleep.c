/* Sleeping until a connection is ready. Spinning before that is in spin.c, the doorbell in bell.c.
 *
 *   the sleeper, ds_wait                       the peer, which sends or returns room
 *
 *   spins that found nothing (spin.c)
 *   ds_arm: own attention |= ARM_x, ++number
 *   fence                                      writes the message; fence
 *   looks once more ── found ──▶ return        is ARM_x set in the sleeper's attention word, with a
 *   ppoll: shadow, bell, wakefd ◀── one byte ──  number that was not rung for yet? then it rings
 *   ds_rung: empties the bell
 *   ds_disarm; looks again
 *
 * Either the sleeper sees the message, or the peer sees the arming (SPEC 4.4, 4.5).
 */
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>

/* Would the kernel restart recv or send after a signal? It does not say which signal interrupted
 * poll, so: yes, if every handler of this process was installed with SA_RESTART. */
static bool restarts(void)
{
	struct sigaction a;

	/* Faults do not interrupt a sleep, and their handlers seldom have SA_RESTART. */
	static const uint64_t faults = 1ull << SIGSEGV | 1ull << SIGBUS | 1ull << SIGFPE | 1ull << SIGILL | 1ull << SIGTRAP | 1ull << SIGABRT | 1ull << SIGSYS;

	for (int i = 1; i < 65; i++)
		if ((i == 64 || !(faults >> i & 1)) && REAL(sigaction, i, NULL, &a) == 0 && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN && !(a.sa_flags & SA_RESTART))
			return false;
	return true;
}

bool ds_recv_restarts(int fd) { return !ds_deadline(fd, SO_RCVTIMEO) && restarts(); }

/* May a look find something? Only in a direction that waits for the segment: in any other state
 * what the queue holds stays there, and the caller would look repeatedly, and miss its
 * deadline. */
static bool hint(struct ds_sock *s, unsigned events)
{
	struct ds_shared *h = s->sh;
	int rx = ds_mode(&h->rx_mode), tx = ds_mode(&h->tx_mode);

	if ((events & POLLIN) && (rx == RX_SHADOW ? ds_rx_there(&s->seg, &h->rx)
	                                          : rx == RX_DIRECT && (ds_rx_hint(&s->seg, &h->rx) || ds_mode(&h->gone))))
		return true;
	return (events & POLLOUT) && tx == TX_DIRECT && (ds_tx_hint(&s->seg, &h->tx) || ds_mode(&h->gone));
}

struct sleeper {
	struct ds_sock *s;
	bool armed, had, users;
	int slot;
};

/* Gives back what a sleeper, a struct sleeper *, has taken; also called if a jump leaves it. */
static void jumped(void *sleeper)
{
	struct sleeper *w = sleeper;

	if (w->armed)
		ds_disarm(w->s, w->had);
	if (w->users)
		ds_wait_end(w->s);
	w->armed = w->users = false;
}

/* The sleep is over. */
static void wake(struct sleeper *w)
{
	ds_critical_begin();
	ds_cleanup_pop(w->slot);
	jumped(w);
	ds_critical_end();
}

/* Registers the sleeper, as a user of the shadow if there is no segment. */
static void lie_down(struct sleeper *w)
{
	ds_critical_begin();
	w->slot = ds_cleanup_push_frame(jumped, w);
	if (!ds_has_segment(w->s)) {
		ds_wait_begin(w->s);
		w->users = !ds_has_segment(w->s);
		if (!w->users) /* the segment came in between */
			ds_wait_end(w->s);
	}
	ds_critical_end();
}

/* Asks the peer to ring for events. The caller then looks once more. */
static void arm(struct sleeper *w, unsigned events)
{
	ds_critical_begin();
	w->had = ds_arm(w->s, events);
	w->armed = true;
	if (w->had && (events & TX_EVENTS) && !ds_one_thread())
		ds_eventfd_make(&w->s->leadfd);
	ds_critical_end();
	ds_fence(&w->s->seg);
}

/* The wakefd, if w is to poll it; -1. shadow: it sleeps for what comes there, and must hear when
 * its descriptor is closed. */
static int wakefd_of(const struct sleeper *w, bool shadow)
{
	struct ds_sock *s = w->s;

	if (w->users)
		return ds_wakefd(s);
	if (!shadow || ds_alone(s) || DS_GET(s->pollers)) /* it is for those */
		return -1;
	ds_wakefd_make(s);
	return ds_wakefd(s);
}

/* Another sleeper has the bell, and wakes this one when it wakes. This ends by itself, too, for
 * that sleeper may have been killed, or may not watch the shadow: sooner if this one does (shadow).
 * timeout: at most so long, or NULL. False: a signal has interrupted it. */
static bool follow(struct ds_sock *s, uint32_t generation, bool shadow, const struct timespec *timeout)
{
	struct timespec limit = {0, shadow ? DS_FOLLOW_MS * 1000000 : 100000000};

	pthread_testcancel();
	if (timeout && !timeout->tv_sec && timeout->tv_nsec < limit.tv_nsec)
		limit = *timeout;
	if (ds_futex_wait(&s->sh->generation, generation, &limit) < 0 && errno == EINTR)
		return false;
	ds_leader_check(s);
	return true;
}

/* The shadow reports its end or an error, said, that the sleeper does not wait for. */
static void shadow_ended(struct ds_sock *s, int fd, unsigned said)
{
	if (!ds_shadow_says(s, fd, said) && ds_mode(&s->sh->tx_mode) == TX_DIRECT && (said & (POLLHUP | POLLERR)))
		__atomic_store_n(&s->sh->gone, 1, __ATOMIC_RELEASE);
}

/* Sets *timeout to how long it is until deadline, kept in t; to NULL if there is none (0). False:
 * it has passed. */
static bool until(int64_t deadline, struct timespec *t, struct timespec **timeout)
{
	int64_t left = deadline - ds_now();

	*t = (struct timespec){left / 1000000000, left % 1000000000};
	*timeout = deadline ? t : NULL;
	return !deadline || left > 0;
}

/* A signal has interrupted a sleep: 0: look again; -1 and EINTR. */
static int interrupted(bool timed)
{
	if (!timed && restarts())
		return 0;
	errno = EINTR;
	return -1;
}

/* One sleep: 0: look again; -1 and errno. */
static int sleep_once(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed)
{
	struct sleeper w __attribute__((cleanup(wake))) = {.s = s, .slot = -1};
	struct pollfd p[4];
	struct timespec t, *timeout, nap = {0, DS_LEADER_MS * 1000000};
	unsigned handled = ds_handled();
	uint64_t count;
	int n = 0;

	uint32_t generation = __atomic_load_n(&s->sh->generation, __ATOMIC_ACQUIRE);
	lie_down(&w);
	int bell = ds_bell(s);
	if (bell >= 0)
		arm(&w, events);
	fd = ds_still(s, fd);
	struct ds_ready r = ds_ready(s, fd, events);
	if (r.now)
		return 0;
	bool shadow = r.kernel & (RX_EVENTS | TX_EVENTS);
	if (!until(deadline, &t, &timeout)) {
		errno = EAGAIN;
		return -1;
	}
	bool naps = ds_unheard(s, events) && !(timeout && !t.tv_sec && t.tv_nsec < nap.tv_nsec);
	if (ds_has_segment(s))
		ds_count(&s->seg, DS_C_SLEEPS, 1);
	if (w.armed && !w.had)
		return follow(s, generation, shadow, timeout) ? 0 : interrupted(timed);
	/* The shadow is always polled: its end of file and its errors count even while the bytes
	 * move in memory. */
	p[n++] = (struct pollfd){.fd = fd, .events = (short)(r.kernel | (bell >= 0 && events & POLLIN ? POLLRDHUP : 0))};
	if (bell >= 0)
		p[n++] = (struct pollfd){.fd = bell, .events = POLLIN};
	int wakefd = wakefd_of(&w, shadow);
	if (wakefd >= 0)
		p[n++] = (struct pollfd){.fd = wakefd, .events = POLLIN};
	int leadfd = w.armed && (events & TX_EVENTS) ? ds_leadfd(s) : -1;
	if (leadfd >= 0)
		p[n++] = (struct pollfd){.fd = leadfd, .events = POLLIN};
	if (ds_handled() != handled)
		return interrupted(timed);
	int got = REAL(ppoll, p, (nfds_t)n, naps ? &nap : timeout, NULL);
	if (got < 0)
		return errno == EINTR ? interrupted(timed) : 0;
	if (got == 0) {
		if (naps || ds_ready(s, fd, events).now)
			return 0;
		errno = EAGAIN;
		return -1;
	}
	for (int i = 1; i < n; i++)
		if (p[i].revents && p[i].fd == leadfd)
			ds_syscall(SYS_read, leadfd, &count, sizeof count);
		else if (p[i].revents && (p[i].fd != wakefd || w.users || ds_syscall(SYS_read, wakefd, &count, sizeof count) < 0))
			ds_rung(s);
	if (ds_still(s, fd) == fd && (p[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) && bell >= 0 && !(p[0].revents & r.kernel))
		shadow_ended(s, fd, (unsigned short)p[0].revents);
	return 0;
}

int ds_wait_or(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed, bool (*before)(void *), void *arg)
{
	struct ds_spin spin;
	bool mine = ds_has_segment(s), found = false;
	int saved = errno, r = 0;

	if (mine) {
		ds_spin_begin(&spin, s);
		while (!found && ds_spin_more(&spin))
			found = hint(s, events);
	}
	if (!found && before)
		found = before(arg);
	if (!found)
		r = sleep_once(s, fd, events, deadline, timed);
	if (mine)
		ds_spin_end(&spin, s, found);
	if (r == 0)
		errno = saved;
	return r;
}

int ds_wait(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed)
{
	return ds_wait_or(s, fd, events, deadline, timed, NULL, NULL);
}

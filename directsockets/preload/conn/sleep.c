/* Sleeping until a connection is ready: the doorbell and how it is armed. Spinning before that is
 * in spin.c.
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
 * Either the sleeper sees the message, or the peer sees the arming (SPEC 4.4, 4.5). Of several
 * sleepers of one connection, in threads and processes, one leads. Only the leader reads the bell,
 * since what one sleeper has read the others would miss; they sleep on a futex, sh->generation,
 * which the leader increments when it wakes.
 *
 * The epoll sets of a process lead together, and tell each other what one of them has read (fd/). A
 * thread that sleeps takes the lead from them, tells them what it reads, and returns the lead:
 * epoll sets never follow a thread of their own process, but they may have to follow another
 * process.
 */
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

/* ---- arming ----------------------------------------------------------------------- */

int ds_bell(struct ds_sock *s) { return s->sh && !s->bell_gone && ds_has_segment(s) ? s->seg.bell : -1; }
bool ds_bell_tells(struct ds_sock *s) { return ds_bell(s) >= 0 && ds_single(s) && !ds_seg_peer_relayed(&s->seg); }
int ds_wakefd(struct ds_sock *s) { return ds_plain(s) ? -1 : __atomic_load_n(&s->wakefd, __ATOMIC_ACQUIRE); }

/* May s get a segment yet? */
static bool may_get_bell(struct ds_sock *s)
{
	int p = __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE);

	return p >= EARLY && p <= GRANTED;
}

void ds_eventfd_make(int *to)
{
	int none = -1;

	if (__atomic_load_n(to, __ATOMIC_ACQUIRE) >= 0)
		return;
	int saved = errno, fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (fd >= 0) {
		fd = ds_fd_keep(fd);
		if (!__atomic_compare_exchange_n(to, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			ds_fd_close(fd);
	}
	errno = saved;
}

void ds_wakefd_make(struct ds_sock *s) { ds_eventfd_make(&s->wakefd); }

void ds_wait_begin(struct ds_sock *s)
{
	if (!s->sh)
		return;
	ds_users_begin(s);
	if (may_get_bell(s) && !ds_alone(s))
		ds_wakefd_make(s);
}

void ds_wait_end(struct ds_sock *s)
{
	if (s->sh)
		ds_users_end(s);
}

/* Tells the peer on which CPU this thread is. */
static void publish_cpu(struct ds_sock *s)
{
	int cpu = sched_getcpu();

	ds_seg_cpu(&s->seg, cpu < 0 ? 0 : (uint32_t)cpu + 1);
}

/* Makes who the leader, unless another is. With s->arming. */
static bool lead(struct ds_sock *s, uint32_t who)
{
	uint32_t none = 0;

	return __atomic_compare_exchange_n(&s->sh->leader, &none, who, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || none == who;
}

/* Asks the peer to ring. had: the caller leads, or hears from the leader. With s->arming. */
static void ask(struct ds_sock *s, unsigned events, bool had)
{
	uint32_t set = (events & RX_EVENTS ? DS_ARM_RX : 0) | (events & TX_EVENTS ? DS_ARM_TX : 0);

	if (!had)
		__atomic_fetch_add(&s->sh->followers, 1, __ATOMIC_ACQ_REL);
	publish_cpu(s);
	ds_attend(&s->seg, &s->sh->attention, set, 0);
}

bool ds_arm(struct ds_sock *s, unsigned events)
{
	uint32_t me = ds_me();

	if (ds_bell(s) < 0)
		return true;
	ds_own_again(&s->arming);
	/* The thread takes the lead from the epoll sets of this process: it tells them
	 * (notices->rung), and they could not tell it. */
	bool had = s->leading ? s->leading == me : s->sets > 0 || lead(s, me);
	if (had) {
		s->leading = me;
		s->leads_rx = events & (RX_EVENTS | POLLRDHUP);
		__atomic_store_n(&s->sh->leader, me, __ATOMIC_RELEASE);
	}
	ask(s, events, had);
	ds_own_unlock(&s->arming);
	return had;
}

bool ds_arm_sets(struct ds_sock *s, unsigned events)
{
	uint32_t name = ds_name_process();

	ds_own_again(&s->arming);
	bool had = s->leading || s->sets > 0 || lead(s, name);
	s->sets += had;
	ask(s, events, had);
	ds_own_unlock(&s->arming);
	return had;
}

void ds_barrier(void)
{
	struct ds_seg all = {.expedited = ds_config.expedited};

	ds_fence(&all);
}

/* Makes the wakefd readable, until the next sleeper on it begins. */
static void tell_pollers(struct ds_sock *s)
{
	uint64_t one = 1;
	int saved = errno;

	ds_syscall(SYS_write, ds_wakefd(s), &one, sizeof one);
	errno = saved;
}

bool ds_follow(struct ds_sock *s)
{
	uint64_t count;
	int saved = errno;

	ds_wakefd_make(s);
	if (ds_wakefd(s) < 0)
		return false;
	__atomic_fetch_add(&s->pollers, 1, __ATOMIC_SEQ_CST);
	ds_syscall(SYS_read, ds_wakefd(s), &count, sizeof count);
	errno = saved;
	ds_own_again(&s->arming);
	bool here = s->leading || s->sets > 0;
	ds_own_unlock(&s->arming);
	if (!__atomic_load_n(&s->sh->leader, __ATOMIC_SEQ_CST)) /* the leader woke before it could know of this thread */
		tell_pollers(s);
	return here;
}

void ds_follow_end(struct ds_sock *s)
{
	if (ds_wakefd(s) >= 0)
		__atomic_fetch_sub(&s->pollers, 1, __ATOMIC_SEQ_CST);
}

/* The leader is awake: wakes those that sleep on the generation, or poll. */
static void wake_followers(struct ds_sock *s)
{
	__atomic_fetch_add(&s->sh->generation, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&s->sh->followers, __ATOMIC_ACQUIRE))
		ds_futex_wake(&s->sh->generation, 1 << 30);
	if (__atomic_load_n(&s->pollers, __ATOMIC_SEQ_CST))
		tell_pollers(s);
}

/* This process gives up the lead. With s->arming. */
static void lead_no_more(struct ds_sock *s)
{
	ds_attend(&s->seg, &s->sh->attention, 0, DS_ARM_RX | DS_ARM_TX);
	__atomic_store_n(&s->sh->leader, 0, __ATOMIC_RELEASE);
}

/* A follower no longer sleeps. */
static void follow_no_more(struct ds_sock *s) { __atomic_fetch_sub(&s->sh->followers, 1, __ATOMIC_ACQ_REL); }

void ds_disarm(struct ds_sock *s, bool had)
{
	if (!s->sh || !ds_has_segment(s))
		return;
	if (!had) {
		follow_no_more(s);
		return;
	}
	ds_own_again(&s->arming);
	bool led = s->leading == ds_me(); /* else it armed before there was a bell */
	if (led) {
		s->leading = 0;
		if (s->sets > 0) {
			__atomic_store_n(&s->sh->leader, ds_name_process(), __ATOMIC_RELEASE);
			ds_attend(&s->seg, &s->sh->attention, DS_ARM_RX | DS_ARM_TX, 0);
		} else {
			lead_no_more(s);
		}
	}
	ds_own_unlock(&s->arming);
	if (led)
		wake_followers(s);
}

void ds_disarm_sets(struct ds_sock *s, bool had)
{
	if (!s->sh || !ds_has_segment(s))
		return;
	if (!had) {
		follow_no_more(s);
		return;
	}
	ds_own_again(&s->arming);
	bool last = s->sets > 0 && --s->sets == 0 && !s->leading;
	if (last)
		lead_no_more(s);
	ds_own_unlock(&s->arming);
	if (last)
		wake_followers(s);
}

/* Empties the bell; look: only checks whether it has ended. */
static void read_bell(struct ds_sock *s, bool look)
{
	char buf[64];
	ssize_t n = -1;
	int saved = errno, bell = ds_bell(s);

	while (bell >= 0) {
		n = ds_syscall(SYS_recvfrom, bell, buf, sizeof buf, MSG_DONTWAIT | (look ? MSG_PEEK : 0), NULL, NULL);
		if (look || (n < (ssize_t)sizeof buf && !(n < 0 && errno == EINTR)))
			break;
	}
	if (bell >= 0 && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))) {
		__atomic_store_n(&s->sh->gone, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&s->bell_gone, true, __ATOMIC_RELEASE); /* from now on ds_bell(s) is -1 */
	}
	errno = saved;
}

void ds_rung(struct ds_sock *s)
{
	uint64_t count;
	int saved = errno, wakefd = ds_wakefd(s);

	if (wakefd >= 0 && !ds_has_segment(s)) /* else it is for all that follow: ds_follow */
		ds_syscall(SYS_read, wakefd, &count, sizeof count);
	errno = saved;
	if (ds_bell(s) < 0)
		return;
	ds_own_again(&s->arming);
	bool mine = s->leading == ds_me(), sets = s->sets > 0;
	read_bell(s, !mine);
	ds_own_unlock(&s->arming);
	if (mine && sets)
		ds_tell_rung(s);
}

bool ds_rung_sets(struct ds_sock *s)
{
	uint32_t name = ds_name_process();

	ds_own_again(&s->arming);
	/* A leading thread sleeps on the bell, and would miss what is read here. If there is none,
	 * none may begin to lead meanwhile. */
	bool mine = !s->leading && (s->sets > 0 || lead(s, name));
	read_bell(s, !mine);
	if (mine && s->sets == 0)
		__atomic_store_n(&s->sh->leader, 0, __ATOMIC_RELEASE);
	ds_own_unlock(&s->arming);
	if (mine)
		wake_followers(s);
	return mine;
}

bool ds_leader_check(struct ds_sock *s)
{
	uint32_t leader = __atomic_load_n(&s->sh->leader, __ATOMIC_ACQUIRE);

	return leader && ds_name_dead(leader) &&
	       __atomic_compare_exchange_n(&s->sh->leader, &leader, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* ---- sleeping ----------------------------------------------------------------------- */

/* Would the kernel restart recv or send after a signal? It does not say which signal interrupted
 * poll, so: yes, if every handler of this process was installed with SA_RESTART. */
static bool restarts(void)
{
	struct sigaction a;

	/* Faults do not interrupt a sleep, and their handlers seldom have SA_RESTART. */
	static const uint64_t faults = 1ull << SIGSEGV | 1ull << SIGBUS | 1ull << SIGFPE | 1ull << SIGILL | 1ull << SIGTRAP | 1ull << SIGABRT | 1ull << SIGSYS;

	for (int i = 1; i < 65; i++)
		if ((i == 64 || !(faults >> i & 1)) && REAL(sigaction)(i, NULL, &a) == 0 && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN && !(a.sa_flags & SA_RESTART))
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
	w->slot = ds_cleanup_push(jumped, w);
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

/* One sleep: 0: look again; -1 and errno. */
static int sleep_once(struct ds_sock *s, int fd, unsigned events, int64_t deadline, bool timed)
{
	struct sleeper w __attribute__((cleanup(wake))) = {.s = s, .slot = -1};
	struct pollfd p[3];
	struct timespec t, *timeout = NULL;
	int n = 0, bell, got, wakefd;
	unsigned handled = ds_handled();
	uint64_t count;

	uint32_t generation = __atomic_load_n(&s->sh->generation, __ATOMIC_ACQUIRE);
	lie_down(&w);
	bell = ds_bell(s);
	if (bell >= 0)
		arm(&w, events);
	fd = ds_still(s, fd);
	struct ds_ready r = ds_ready(s, fd, events);
	if (r.now)
		return 0;
	if (deadline) {
		int64_t left = deadline - ds_now();

		if (left <= 0) {
			errno = EAGAIN;
			return -1;
		}
		t = (struct timespec){left / 1000000000, left % 1000000000};
		timeout = &t;
	}
	if (ds_has_segment(s))
		ds_count(&s->seg, DS_C_SLEEPS, 1);
	if (w.armed && !w.had) {
		/* Another sleeper has the bell: it wakes us when it wakes. It may have been killed,
		 * or may not watch the shadow. */
		struct timespec limit = {0, r.kernel & (RX_EVENTS | TX_EVENTS) ? DS_FOLLOW_MS * 1000000 : 100000000};

		pthread_testcancel();
		if (timeout && (timeout->tv_sec || timeout->tv_nsec < limit.tv_nsec))
			limit = timeout->tv_sec ? limit : *timeout;
		if (ds_futex_wait(&s->sh->generation, generation, &limit) < 0 && errno == EINTR)
			goto interrupted;
		ds_leader_check(s);
		return 0;
	}
	/* The shadow is always polled: an end or an error there is true even if the bytes go
	 * elsewhere. */
	p[n++] = (struct pollfd){.fd = fd, .events = (short)(r.kernel | (bell >= 0 && events & POLLIN ? POLLRDHUP : 0))};
	if (bell >= 0)
		p[n++] = (struct pollfd){.fd = bell, .events = POLLIN};
	if ((wakefd = wakefd_of(&w, r.kernel & (RX_EVENTS | TX_EVENTS))) >= 0)
		p[n++] = (struct pollfd){.fd = wakefd, .events = POLLIN};
	if (ds_handled() != handled)
		goto interrupted;
	got = REAL(ppoll)(p, (nfds_t)n, timeout, NULL);
	if (got < 0 && errno == EINTR)
		goto interrupted;
	if (got == 0 && !ds_ready(s, fd, events).now) {
		errno = EAGAIN;
		return -1;
	}
	for (int i = 1; i < n; i++)
		if (got > 0 && p[i].revents && (p[i].fd != wakefd || w.users || ds_syscall(SYS_read, wakefd, &count, sizeof count) < 0))
			ds_rung(s);
	if (got > 0 && ds_still(s, fd) == fd && (p[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) && bell >= 0 && !(p[0].revents & r.kernel)) {
		/* The shadow has ended: before that, the peer has said all it had to say on the
		 * segment, or it is gone. */
		if (!ds_ready(s, fd, events).now && ds_mode(&s->sh->rx_mode) == RX_DIRECT)
			__atomic_store_n(&s->sh->gone, 1, __ATOMIC_RELEASE);
		if (ds_mode(&s->sh->tx_mode) == TX_DIRECT && (p[0].revents & (POLLHUP | POLLERR)))
			__atomic_store_n(&s->sh->gone, 1, __ATOMIC_RELEASE);
	}
	return 0;
interrupted:
	if (!timed && restarts())
		return 0;
	errno = EINTR;
	return -1;
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

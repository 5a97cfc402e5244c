/* The doorbell: how it is armed, who of several sleepers reads it, and whom that one wakes.
 * A thread sleeps in sleep.c, epoll sets in fd/.
 *
 * Of several sleepers of one connection, in threads and processes, one leads. Only the leader reads
 * the bell, since what one sleeper has read the others would miss; they sleep on a futex,
 * sh->generation, which the leader increments when it wakes.
 *
 * The epoll sets of a process lead together, and tell each other what one of them has read (fd/). A
 * thread that sleeps takes the lead from them, tells them what it reads, and returns the lead:
 * epoll sets never follow a thread of their own process, but they may have to follow another
 * process.
 */
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

int ds_bell(struct ds_sock *s) { return s->sh && !s->bell_gone && ds_has_segment(s) ? s->seg.bell : -1; }
bool ds_bell_tells(struct ds_sock *s) { return ds_bell(s) >= 0 && ds_single(s) && !ds_seg_peer_relayed(&s->seg); }
int ds_wakefd(struct ds_sock *s) { return ds_plain(s) ? -1 : __atomic_load_n(&s->wakefd, __ATOMIC_ACQUIRE); }

/* May s get a segment yet? */
static bool may_get_bell(struct ds_sock *s)
{
	int state = ds_state_of(s);

	return state >= CONN_EARLY && state <= CONN_GRANTED;
}

void ds_eventfd_make(int *to)
{
	int none = -1;

	if (__atomic_load_n(to, __ATOMIC_ACQUIRE) >= 0)
		return;
	int saved = errno, fd = kernel_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (fd >= 0) {
		fd = ds_fd_keep(fd, to);
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

int ds_leadfd(struct ds_sock *s) { return __atomic_load_n(&s->leadfd, __ATOMIC_ACQUIRE); }

void ds_nudge(struct ds_sock *s)
{
	uint64_t one = 1;
	int saved = errno, fd;

	if (ds_one_thread())
		return;
	ds_wakefd_make(s);
	if (ds_wakefd(s) >= 0)
		ds_syscall(SYS_write, ds_wakefd(s), &one, sizeof one);
	/* Either this thread sees the descriptor, or the leader, after ds_barrier, what has
	 * happened. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if ((fd = ds_leadfd(s)) >= 0)
		ds_syscall(SYS_write, fd, &one, sizeof one);
	errno = saved;
}

void ds_wake_all(struct ds_sock *s)
{
	ds_nudge(s);
	wake_followers(s);
	ds_tell_rung(s);
}

void ds_options_set(struct ds_sock *s, int fd)
{
	unsigned low = DS_GET(s->lowat);

	ds_options_changed(s, fd);
	if (DS_GET(s->lowat) < low && ds_has_segment(s))
		ds_wake_all(s); /* what has come may be enough now */
}

bool ds_unheard(struct ds_sock *s, unsigned events) { return (events & TX_EVENTS) && ds_bell(s) >= 0 && (!ds_single(s) || DS_GET(s->full)); }

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

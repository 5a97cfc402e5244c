/* Flows to a UDP socket: which are awake, and what they hold. */
#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	BUSY_US = 10000,       /* how long it waits for senders that publish, at once, */
	BUSY_SHARE = 16,       /* and all in all: a sixteenth of its time, */
	BUSY_MOST_US = 50000,  /* and this, if it has not for long */
	SHORT_US = 20,
	SOFTIRQ_US = 1000, /* after this a missing datagram is lost, if the kernel has dropped some, */
	LATE_US = 20000,   /* otherwise after this: on a busy machine ksoftirqd may still hold it */
	MOMENT_NS = 50000,
	NAP_MOST_US = 10000, /* more than that is none */
	LEAST = 512, /* bytes of SO_RCVBUF that a datagram takes at least */
};

uint32_t ds_dg_flows;
uint64_t ds_dg_moved[4];

uint64_t ds_dg_ticks(unsigned us) { return us * ds_ticks_us(); }

struct ds_dg_in *ds_dg_from(struct ds_dgram *d, const uint8_t addr[16], uint16_t port)
{
	for (unsigned i = 0; i < d->nin; i++) {
		const struct ds_info *n = &d->flows[i]->seg.info;

		if (d->flows[i]->state != DG_IN_ENDED && n->port[0] == port && !memcmp(n->addr[0], addr, 16))
			return d->flows[i];
	}
	return NULL;
}

bool ds_dg_add(struct ds_dgram *d, struct ds_dg_in *f)
{
	struct ds_dg_in *before = ds_dg_from(d, f->seg.info.addr[0], f->seg.info.port[0]);

	if (before)
		ds_dg_in_close(d, before, DS_WHY_PEER);
	ds_dg_in_sweep(d);
	if (!d->nin) /* what was shown came by the kernel, and so is first with new flows */
		ds_dg_gave(d, NULL);
	if (d->nin == DS_DG_FLOWS)
		return false;
	DS_SET(ds_dg_flows, ds_dg_flows + 1);
	d->flows[d->nin] = f;
	DS_SET(d->nin, d->nin + 1);
	return true;
}

/* ---- arming ------------------------------------------------------------------------- */

/* How long d may wait for senders that publish: they may do so for as long as they like. */
static uint64_t may_wait(struct ds_dgram *d, uint64_t now)
{
	uint64_t credit = d->credit + (now - d->credited) / BUSY_SHARE, most = BUSY_MOST_US * ds_ticks_us(), once = BUSY_US * ds_ticks_us();

	d->credit = credit < most ? credit : most;
	d->credited = now;
	return d->credit < once ? d->credit : once;
}

/* Waits until no sender of the n flows that are being armed publishes. */
static void await_idle(struct ds_dgram *d, struct ds_dg_in *const *arming, unsigned n)
{
	uint64_t begin = 0, now = 0, most = 0;

	for (unsigned i = 0; i < n; i++) {
		struct ds_dg_in *f = arming[i];

		while (ds_dg_busy(&f->seg)) {
			now = ds_ticks();
			if (!begin) {
				begin = now;
				most = may_wait(d, now);
			}
			if (now - begin > most) {
				ds_dg_in_close(d, f, DS_WHY_PEER);
				break;
			}
			if (now - begin > SHORT_US * ds_ticks_us())
				ds_syscall(SYS_sched_yield);
			else
				ds_pause();
		}
	}
	d->credit -= now - begin < d->credit ? now - begin : d->credit;
}

/* Does f have records, due or not? */
static bool holds(const struct ds_dg_in *f) { return ds_dg_there(&f->seg) || ds_dg_early(&f->seg); }

/* Does the sender of f write to the ring as long as what that holds is not consumed? */
static bool may_ring(const struct ds_dg_in *f) { return f->state == DG_IN_RUNG && ds_dg_rung(&f->seg); }

/* Takes those that hold nothing out of the list, but for those in memory. */
static void unlist_empty(struct ds_dgram *d)
{
	for (unsigned i = d->nlisted; i-- > 0;)
		if (d->list[i]->state != DG_IN_MEMORY && !holds(d->list[i]))
			ds_dg_in_on(d, d->list[i], DG_ON_EMPTY);
}

/* Arms those that are in memory, how, and again those that are armed for a bell and have had
 * records: their sender may be publishing, as it has not seen yet that those are consumed. With
 * bells all that are armed for a bell: they may have records by now. */
static void arm(struct ds_dgram *d, uint32_t how, bool bells)
{
	struct ds_dg_in *arming[DS_DG_FLOWS];
	unsigned n = 0;

	for (unsigned i = 0; bells && i < d->nin; i++)
		if (d->flows[i]->state == DG_IN_ARMED && ds_dg_rung(&d->flows[i]->seg))
			ds_dg_in_on(d, d->flows[i], DG_ON_RING);
	for (unsigned i = 0; i < d->nlisted; i++) {
		struct ds_dg_in *f = d->list[i];

		if (f->state != DG_IN_MEMORY && !may_ring(f))
			continue;
		ds_dg_arm(&f->seg, how);
		arming[n++] = f;
	}
	if (!n)
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	await_idle(d, arming, n);
	for (unsigned i = 0; i < n; i++)
		if (arming[i]->state == DG_IN_MEMORY)
			ds_dg_in_on(d, arming[i], DG_ON_ARM);
	unlist_empty(d);
}

void ds_dg_arm_all(struct ds_dgram *d) { arm(d, DS_DG_ALL, !d->no_bells); }

void ds_dg_end_bells(struct ds_dgram *d)
{
	for (unsigned i = 0; i < d->nin; i++)
		ds_dg_take_after(&d->flows[i]->seg, false);
	ds_dg_arm_all(d);
	DS_SET(d->no_bells, true);
}

void ds_dg_arm_waiting(struct ds_dgram *d)
{
	if (!d->no_bells && d->nin && ds_dg_waiting(d) > 1)
		ds_dg_end_bells(d);
	arm(d, d->no_bells ? DS_DG_ALL : DS_DG_BELL, false);
}

/* How many datagrams the kernel has dropped at d's socket that no flow has counted as lost.
 * UINT32_MAX: it does not say. */
static uint32_t drops(const struct ds_dgram *d, int fd)
{
	uint32_t info[SK_MEMINFO_DROPS + 1];
	socklen_t n = sizeof info;
	int saved = errno;
	bool says = REAL(getsockopt, fd, SOL_SOCKET, SO_MEMINFO, info, &n) == 0 && n >= sizeof info;

	errno = saved;
	return says ? info[SK_MEMINFO_DROPS] - d->gone : UINT32_MAX;
}

void ds_dg_forget_drops(struct ds_dgram *d, int fd)
{
	uint32_t n = drops(d, fd);

	d->gone += n != UINT32_MAX ? n : 0;
}

bool ds_dg_is_empty(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timespec none = {0, 0};
	int saved = errno;
	long n;

	do /* a signal interrupts even a look that does not wait */
		n = ds_syscall(SYS_ppoll, &p, 1, &none, NULL, 0); /* not a cancellation point */
	while (n < 0 && errno == EINTR);
	errno = saved;
	return n == 0 || (n > 0 && !(p.revents & (POLLIN | POLLNVAL)));
}

int ds_dg_await_kernel(struct ds_dgram *d, int fd)
{
	struct ds_dg_in *early[DS_DG_FLOWS];
	unsigned n_early = 0;
	bool waits = false;

	for (unsigned i = 0; i < d->nlisted; i++)
		if (ds_dg_early(&d->list[i]->seg))
			early[n_early++] = d->list[i];
	if (!n_early)
		return DG_RESTS;
	/* Asked after all the looks: what a record waits for was sent before the record. */
	uint64_t now = ds_ticks() | 1, moment = 2 * MOMENT_NS * ds_ticks_us() / 1000;
	bool empty = ds_dg_is_empty(fd);

	for (unsigned i = 0; i < n_early; i++) {
		struct ds_dg_in *f = early[i];

		if (!f->early) {
			int size = 0;
			socklen_t n = sizeof size;
			f->early = now;
			REAL(getsockopt, fd, SOL_SOCKET, SO_RCVBUF, &size, &n);
			f->enough = d->by_kernel + (unsigned)size / LEAST;
		}
		bool none = empty || d->by_kernel > f->enough;
		uint32_t gone = none && now - f->early >= SOFTIRQ_US * ds_ticks_us() ? drops(d, fd) : 0;
		/* With fewer drops than that, ksoftirqd may have one of them. */
		bool over = gone >= ds_dg_missing(&f->seg) || now - f->early >= LATE_US * ds_ticks_us() || may_wait(d, now) < moment;
		if (over && none) {
			uint32_t missing = ds_dg_give_up(&f->seg);
			if (gone != UINT32_MAX) /* a single flow has lost them all, or nobody's was */
				d->gone += missing < gone && d->nin > 1 ? missing : gone;
			f->early = 0;
		} else {
			waits = true;
		}
	}
	/* Its sender says what it waits for: that takes no more of d's time than one that
	 * publishes. On a busy machine a moment is long. */
	if (waits && empty) {
		uint64_t napped = d->napped && now - d->napped < NAP_MOST_US * ds_ticks_us() ? now - d->napped : moment;
		d->credit -= napped < d->credit ? napped : d->credit;
	}
	d->napped = waits && empty ? now : 0;
	return !waits ? DG_RESTS : empty ? DG_NAPS : DG_LOOKS;
}

void ds_dg_moment(void)
{
	int saved = errno;

	ds_syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = MOMENT_NS}, NULL);
	errno = saved;
}

void ds_dg_took(struct ds_dgram *d, struct ds_dg_in *f, unsigned n)
{
	while (n-- > 0)
		ds_dg_count(&f->seg);
	if (f->state == DG_IN_ARMED && holds(f))
		ds_dg_in_on(d, f, DG_ON_RING);
	ds_dg_wake(d, f);
}

void ds_dg_eager_wake(struct ds_dgram *d, struct ds_dg_in *f, int fd)
{
	f->read = ds_dg_by_kernel(&f->seg);
	if (ds_dg_waiting(d) || !ds_dg_is_empty(fd))
		return;
	ds_dg_was_dry(&f->seg, f->read);
	ds_dg_wake(d, f);
}

void ds_dg_wake(struct ds_dgram *d, struct ds_dg_in *f)
{
	if ((f->state != DG_IN_ARMED && f->state != DG_IN_RUNG) || d->hard || (d->wants && !f->sampled))
		return;
	/* Before the look at who sleeps: one who is counted after that finds f listed, and waits
	 * for the lock. */
	if (f->state == DG_IN_ARMED)
		ds_dg_in_on(d, f, DG_ON_RING);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (ds_dg_waiting(d)) {
		ds_dg_end_bells(d);
		unlist_empty(d);
		return;
	}
	ds_dg_in_on(d, f, DG_ON_WAKE);
	ds_dg_arm(&f->seg, DS_DG_AWAKE);
	if (f->entry && DS_GET(f->entry->mode) != DS_MODE_DIRECT)
		ds_stats_direct(f->entry, DS_PATH_MEMORY);
}

void ds_dg_before(struct ds_dgram *d)
{
	for (unsigned i = 0; i < d->nlisted; i++)
		d->list[i]->read = ds_dg_by_kernel(&d->list[i]->seg);
}

void ds_dg_found_nothing(struct ds_dgram *d)
{
	if (__atomic_load_n(&d->uncounted, __ATOMIC_SEQ_CST))
		return;
	for (unsigned i = 0; i < d->nlisted; i++)
		if (d->list[i]->state == DG_IN_MEMORY)
			ds_dg_was_dry(&d->list[i]->seg, d->list[i]->read);
}

/* ---- the end of a flow -------------------------------------------------------------- */

/* Tells the sender that this side takes no more than what is there now. */
static void shut(struct ds_dgram *d, struct ds_dg_in *f, int what, int why)
{
	if (f->state == DG_IN_DRAINING || f->state == DG_IN_ENDED)
		return;
	ds_dg_in_on(d, f, what);
	ds_dg_arm(&f->seg, DS_DG_ALL);
	ds_dg_close(&f->seg);
	if (!holds(f))
		ds_dg_in_on(d, f, DG_ON_EMPTY);
	if (f->entry && why)
		ds_stats_say(f->entry, DS_MODE_DEMOTED, why);
}

void ds_dg_in_close(struct ds_dgram *d, struct ds_dg_in *f, int why) { shut(d, f, DG_ON_CLOSE, why); }
void ds_dg_in_moved(struct ds_dgram *d, struct ds_dg_in *f) { shut(d, f, DG_ON_MOVED, DS_WHY_PEER); }

void ds_dg_in_drop_all(struct ds_dgram *d)
{
	for (unsigned i = 0; i < d->nin; i++)
		if (d->flows[i]->state != DG_IN_ENDED)
			ds_dg_in_on(d, d->flows[i], DG_ON_DROP);
}

void ds_dg_in_close_all(struct ds_dgram *d, int why)
{
	ds_dg_arm_all(d);
	for (unsigned i = 0; i < d->nin; i++)
		ds_dg_in_close(d, d->flows[i], why);
}

/* Is the other end gone? It publishes nothing more, even if it ended while it did. */
static bool dead(const struct ds_dg_in *f) { return ds_fd_ended(f->alive); }

/* What f has had, and how often what it had has become due: part of ds_dg_arrivals. */
static uint64_t arrived(struct ds_dg_in *f) { return ds_dg_arrived(&f->seg) + f->seg.given_up; }

void ds_dg_in_sweep(struct ds_dgram *d)
{
	unsigned left = 0;
	int saved = errno;

	for (unsigned i = 0; i < d->nin; i++) {
		struct ds_dg_in *f = d->flows[i];

		if (dead(f) || ((f->seg.broken || ds_dg_left(&f->seg)) && !ds_dg_busy(&f->seg)))
			ds_dg_in_close(d, f, f->seg.broken ? DS_WHY_BREACH : DS_WHY_PEER);
		if (f->state == DG_IN_DRAINING && !holds(f))
			ds_dg_in_on(d, f, DG_ON_EMPTY);
		if (f->state != DG_IN_ENDED) {
			d->flows[left++] = f;
			continue;
		}
		DS_SET(d->past, d->past + arrived(f));
		ds_dg_unmap(&f->seg);
		ds_fd_close(f->alive);
		ds_dg_entry_put(f->entry, 0);
		REAL(munmap, f, sizeof *f);
	}
	DS_SET(d->nin, left);
	errno = saved;
}

/* ---- what they hold ----------------------------------------------------------------- */

struct ds_dg_in *ds_dg_pick(struct ds_dgram *d)
{
	struct ds_dg_in *best = NULL;
	uint64_t stamp = 0;

	for (unsigned i = 0; i < d->nlisted; i++) {
		struct ds_dg_in *f = d->list[i];

		if (!ds_dg_there(&f->seg)) {
			if (f->state != DG_IN_MEMORY && !may_ring(f) && !ds_dg_early(&f->seg)) { /* nothing comes any more */
				ds_dg_in_on(d, f, DG_ON_EMPTY);
				i--; /* another one is in its place */
			}
			continue;
		}
		uint64_t t = ds_dg_stamp(&f->seg);
		if (!best || (int64_t)(t - stamp) < 0) {
			best = f;
			stamp = t;
		}
	}
	return best;
}

bool ds_dg_peeked(struct ds_dgram *d)
{
	for (unsigned i = 0, n = DS_GET(d->nlisted); i < n && i < DS_DG_FLOWS; i++) {
		struct ds_dg_in *f = DS_GET(d->list[i]);
		if (f && ds_dg_there(&f->seg))
			return true;
	}
	return false;
}

bool ds_dg_overdue(struct ds_dgram *d, int fd)
{
	uint64_t now = ds_ticks();

	if (now - d->glanced >= MOMENT_NS * ds_ticks_us() / 1000) {
		d->glanced = now;
		ds_dg_await_kernel(d, fd);
	}
	return ds_dg_peeked(d);
}

bool ds_dg_due(struct ds_dgram *d, int fd)
{
	bool due;

	if (!DS_GET(d->nlisted) || ds_own_lock(&d->in) == DS_NESTED)
		return false;
	due = ds_dg_peeked(d) || ds_dg_overdue(d, fd);
	ds_own_unlock(&d->in);
	return due;
}

bool ds_dg_ready(struct ds_dgram *d)
{
	bool ready;

	if (!DS_GET(d->nlisted) || ds_own_lock(&d->in) == DS_NESTED)
		return false;
	ready = ds_dg_peeked(d);
	ds_own_unlock(&d->in);
	return ready;
}

uint64_t ds_dg_arrivals(struct ds_dgram *d)
{
	if (!ds_dg_inward(d) || ds_own_lock(&d->in) == DS_NESTED)
		return DS_GET(d->past);
	uint64_t n = d->past;
	for (unsigned i = 0; i < d->nin; i++)
		n += arrived(d->flows[i]);
	ds_own_unlock(&d->in);
	return n;
}

/* Spinning before sleeping.
 *
 * A thread that has a CPU to itself spins: the answer comes from another CPU, sooner than a sleep
 * would take. A thread that shares its CPU yields it instead: the threads that wait for the CPU are
 * likely the ones that make the answer, which then comes without anyone sleeping, ringing or being
 * woken. Yielding is about three times cheaper than sleeping, as long as the others do not keep the
 * CPU: after a yield that took too long it is not tried for a while.
 */
#include "conn/inner.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

enum {
	SPIN_MAX = 50000, /* ns before a side arms; SPEC 4.6 */
	SPIN_MIN = 4000,
	VAIN = 2,         /* spins in a row that found nothing, after which */
	SPIN_REST = 64,   /* so many sleeps go without */
	EAGER = 64,       /* looks without a pause between them */
	PROBE_US = 2,     /* of spinning, until a yield asks whether somebody else wants the CPU */
	YIELDS = 3,       /* that others took, before it sleeps all the same */
	WON = 8,          /* us that a yield saves if what is waited for comes, */
	LOST = 4,         /* and that it costs if not */
	LATE_US = 300,    /* in which the CPU comes back if all have little to do */
	LATE_MOST = 1000000,
	SLOW_US = 1000,   /* or later, if sleeping takes as long */
	PROFIT = 2000,    /* us saved after which pauses become shorter, */
	LOSS = 1000,      /* us lost after which there is one, twice as long as the one before */
	PAUSE_MAX = 12,   /* log2 of its sleeps */
	NAP_US = 5000,    /* sleeps of up to this count as waiting for a peer at work */
	YIELD_US = 100,   /* a goroutine yields for so long before it sleeps */
};

/* A thread's spinner for sleeps on many sockets, and whether others wanted its CPU when it last
 * asked. */
static DS_LOCAL struct ds_spinner spinners;
static DS_LOCAL bool were_crowded;
#define many DS_HERE(spinners)
#define was_crowded DS_HERE(were_crowded)

/* Ticks that a yield takes if there is nobody to yield to: the least ever seen. */
static uint64_t quickest = UINT64_MAX;

/* Tells the processor that this is a spin. No lock. */
static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	ds_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Threads share the spinner of a connection: approximate values do. */
#define GET(p) __atomic_load_n(&(p), __ATOMIC_RELAXED)
#define SET(p, v) __atomic_store_n(&(p), (unsigned)(v), __ATOMIC_RELAXED)

void ds_spin_begin(struct ds_spin *p, struct ds_sock *s)
{
	struct ds_spinner *of = s ? &s->spinner : &many;
	unsigned budget = GET(of->budget), rest = GET(of->rest), pause = GET(of->pause);

	*p = (struct ds_spin){.start = ds_ticks(), .of = of, .polite = !pause, .crowded = was_crowded};
	if (rest) { /* spins found nothing lately */
		SET(of->rest, rest - 1);
		budget = 0;
	}
	if (pause)
		SET(of->pause, pause - 1);
	if (s && ds_has_segment(s)) {
		int cpu = sched_getcpu();

		ds_seg_cpu(&s->seg, cpu < 0 ? 0 : (uint32_t)cpu + 1);
		if (cpu >= 0 && ds_seg_peer_cpu(&s->seg) == (uint32_t)cpu + 1)
			p->crowded = true; /* by the peer, if by nobody else */
	}
	p->budget = budget * ds_ticks_us() / 1000;
	p->until = p->start + p->budget;
	p->next = p->start + PROBE_US * ds_ticks_us();
}

/* Yields the CPU, and finds out whether anybody took it. */
static void yield(struct ds_spin *p, uint64_t t)
{
	ds_syscall(SYS_sched_yield);
	uint64_t now = ds_ticks(), took = now - t, quick = __atomic_load_n(&quickest, __ATOMIC_RELAXED);

	if (took < quick) {
		quick = took;
		__atomic_store_n(&quickest, took, __ATOMIC_RELAXED);
	}
	bool before = p->crowded;
	was_crowded = p->crowded = took > 3 * quick;
	p->next = now + PROBE_US * ds_ticks_us();
	if (!p->crowded) {
		p->asked = true;
		if (before)
			p->until = now + p->budget;
		return;
	}
	p->yields++;
	/* If others kept the CPU, and the one that we wait for did not need it, a sleep would have
	 * been over before. */
	uint64_t us = took / ds_ticks_us(), nap = GET(p->of->nap) * 2;
	nap = nap < SLOW_US ? nap : SLOW_US;
	if (us > LATE_US && us > nap)
		p->late = us - nap < LATE_MOST ? (unsigned)(us - nap) : LATE_MOST;
}

bool ds_spin_more(struct ds_spin *p)
{
	uint64_t t = p->start;

	if (!p->crowded && p->budget) {
		if (++p->rounds > EAGER) /* a pause takes as long as a message */
			relax();
		if (p->rounds % 8)
			return true;
		t = ds_ticks();
		if (t < p->until && (t < p->next || !p->polite))
			return true;
	} else if (p->yields || p->asked) {
		t = ds_ticks();
	}
	p->end = t;
	if (!p->polite || p->late || p->yields == YIELDS || (!p->crowded && (p->budget ? t >= p->until : p->asked)))
		return false;
	yield(p, t);
	return true;
}

/* Keeps account of what yields save and cost. */
static void learn(struct ds_spinner *of, const struct ds_spin *p, bool found)
{
	unsigned again = GET(of->again);
	int sum = __atomic_load_n(&of->sum, __ATOMIC_RELAXED) + (found && !p->late ? WON : -LOST - (int)p->late);

	if (sum >= PROFIT) {
		sum = 0;
		if (again)
			SET(of->again, again - 1);
	} else if (sum <= -LOSS) {
		/* One yield that took long is as bad as many that took a moment: under load each
		 * may cost a tenth of a second, and a socket's queue overflows meanwhile. */
		for (; sum <= -LOSS && again < PAUSE_MAX; sum += LOSS)
			again++;
		sum = 0;
		SET(of->again, again);
		SET(of->pause, 1u << again);
	}
	__atomic_store_n(&of->sum, sum, __ATOMIC_RELAXED);
}

/* As the kernel's halt polling: spin for longer if that would have caught what came, less if it was
 * for nothing. found: by spinning; else it is called after the sleep. */
void ds_spin_end(struct ds_spin *p, struct ds_sock *s, bool found)
{
	struct ds_spinner *of = p->of;
	uint64_t now = ds_ticks(), us = ds_ticks_us();
	bool spun = p->budget && !p->crowded;

	if (s && (spun || p->yields) && ds_has_segment(s))
		ds_count(&s->seg, found ? DS_C_SPINS_FOUND : DS_C_SPINS_VAIN, 1);
	if (p->yields)
		learn(of, p, found);
	if (found) {
		SET(of->vain, 0);
		return;
	}
	uint64_t nap = (now - p->end) / us, ns = (now - p->start) * 1000 / us;
	unsigned budget = GET(of->budget), vain = GET(of->vain), rest = GET(of->rest), mean = GET(of->nap);

	if (nap < NAP_US)
		SET(of->nap, mean ? (mean * 7 + nap + 7) / 8 : nap);
	if (spun) {
		SET(of->vain, vain + 1 < VAIN ? vain + 1 : 0);
		if (vain + 1 >= VAIN) {
			SET(of->rest, SPIN_REST);
			SET(of->budget, budget / 2 < SPIN_MIN ? SPIN_MIN : budget / 2);
			return;
		}
	}
	if (ns >= SPIN_MAX)
		return;
	if (!spun && rest > 1)
		SET(of->rest, rest / 2); /* short sleeps: try again soon */
	SET(of->budget, budget * 2 > SPIN_MAX ? SPIN_MAX : budget < SPIN_MIN ? SPIN_MIN : budget * 2);
}

void ds_spun_slept(enum ds_spun *state, struct ds_spin *p)
{
	int saved = errno;

	if (*state == DS_SPUN_OPEN)
		ds_spin_end(p, NULL, false);
	*state = DS_SPUN_OVER;
	errno = saved;
}

bool ds_yields(struct ds_sock *s)
{
	struct ds_yield *y = &s->yield;

	if (!s->sh || !ds_has_segment(s) || ds_mode(&s->sh->rx_mode) != RX_DIRECT)
		return false;
	uint64_t n = ds_rx_messages(&s->sh->rx), t = ds_ticks(), limit = YIELD_US * ds_ticks_us();
	if (n != y->messages) {
		if (y->state == DS_YIELDS) {
			y->vain = 0;
			ds_count(&s->seg, DS_C_SPINS_FOUND, 1);
		} else if (t - y->since < limit) {
			y->rest /= 2; /* short sleeps: try again soon */
		}
		y->messages = n;
		y->since = t;
		y->state = y->rest ? DS_SLEEPS : DS_YIELDS;
		y->rest -= y->rest > 0;
	}
	if (y->state == DS_SLEEPS || t - y->since < limit)
		return y->state == DS_YIELDS;
	y->state = DS_SLEEPS;
	ds_count(&s->seg, DS_C_SPINS_VAIN, 1);
	if (++y->vain >= VAIN) {
		y->vain = 0;
		y->rest = SPIN_REST;
	}
	return false;
}

// Who moves a direction: one that was killed in the middle, and its heir; and two at once.
#include "ends.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct side c, s;

// A process that shares a does half of a step with a lock, and is killed.
static void killed(struct side *a, void (*half)(struct side *a))
{
	ds_fork_prepare();
	pid_t p = fork();
	if (p == 0) {
		ds_fork_child();
		half(a);
		_exit(failures != 0);
	}
	ds_fork_parent(p);
	int status = -1;
	CHECK(waitpid(p, &status, 0) == p && status == 0, "the killed one: %#x", status);
}

static void limit_read(struct side *a)
{
	struct timeval t = {60, 0};

	CHECK(setsockopt(a->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0, "SO_RCVTIMEO");
}

// n bytes that from sends now come to the other end next.
static void carries(const char *what, struct side *from, struct side *to, const char *bytes)
{
	char b[16] = {0};
	size_t n = strlen(bytes);
	ssize_t r = put(from, bytes, n, 0);

	CHECK(r == (ssize_t)n, "%s: send: %zd %s", what, r, strerror(errno));
	limit_read(to);
	r = get(to, b, n, MSG_WAITALL);
	CHECK(r == (ssize_t)n && !memcmp(b, bytes, n), "%s: received %zd '%s' %s", what, r, b, r < 0 ? strerror(errno) : "");
}

static void direct_again(const char *what)
{
	int64_t end = ds_now() + 60000000000;

	for (int i = 0; ds_now() < end && (ds_direct(c.s) & ds_direct(s.s)) != 3 && !failures; i++)
		exchange(&c, &s, i);
	CHECK((ds_direct(c.s) & ds_direct(s.s)) == 3, "%s: not direct again", what);
}

static void hang_up_both(void)
{
	hang_up(&c);
	hang_up(&s);
}

// Both have the segment, and the server has sent nothing: it has still to promote.
static void pair_half(void)
{
	char b[2];

	connect_to(&c);
	accept_from(&s);
	while (ds_state_of(c.s) != CONN_UP || ds_state_of(s.s) != CONN_UP) {
		put(&c, "ab", 2, 0);
		get(&s, b, 2, MSG_WAITALL);
		usleep(100);
	}
	CHECK(s.s->sh->tx_mode == TX_SHADOW && c.s->sh->rx_mode == RX_SHADOW, "it is not the case of this test");
}

static void says(struct side *a, int tag)
{
	ds_tx_take(a->s, false);
	CHECK(ds_tx_end(&a->s->seg, &a->s->sh->tx, &a->s->sh->attention, tag) == 0, "say %d", tag);
}

static void says_demote(struct side *a) { says(a, DS_DEMOTE); }
static void says_pause(struct side *a) { says(a, DS_PAUSE); }
static void says_shutdown(struct side *a) { says(a, DS_SHUTDOWN); }

static void says_promote(struct side *a)
{
	uint64_t carried = 0;

	ds_tx_take(a->s, false);
	CHECK(ds_kernel_sent(a->fd, a->s->side, &carried) && ds_tx_promote(&a->s->seg, &a->s->sh->tx, &a->s->sh->attention, carried) == 0, "promote");
}

static void finds_promote(struct side *a)
{
	uint64_t carried;

	ds_rx_take(a->s, false);
	CHECK(ds_rx_promoted(&a->s->seg, &a->s->sh->rx, &carried) == 1, "PROMOTE is not there");
}

static void finds_pause(struct side *a)
{
	ds_rx_take(a->s, false);
	CHECK(ds_rx_look(&a->s->seg, &a->s->sh->rx) == DS_PAUSED, "PAUSE is not there");
	ds_on_rx(a->s, ON_PAUSE);
}

static void falls_back(struct side *a)
{
	ds_rx_take(a->s, false);
	CHECK(ds_seg_fall_back(&a->s->seg, &a->s->sh->rx, &a->s->sh->attention) >= 0, "fall back");
}

// Has written some of what is to return, and not all.
static void writes_back(struct side *a)
{
	struct ds_shared *h = a->s->sh;

	ds_tx_take(a->s, false);
	CHECK(ds_tx_return_begin(&a->s->seg, &h->tx, &h->attention, &h->return_slot, &h->return_off) == 0, "RETURNED");
	ds_on_tx(a->s, ON_FALLEN_BACK);
	CHECK(send(a->fd, "onet", 4, 0) == 4, "the shadow: %s", strerror(errno));
}

// Has read one byte, or two, of the shadow.
static void reads_shadow(struct side *a, size_t n)
{
	char b[2];

	ds_rx_take(a->s, false);
	CHECK(recv(a->fd, b, n, MSG_WAITALL) == (ssize_t)n, "the shadow: %s", strerror(errno));
}

static void reads_one(struct side *a) { reads_shadow(a, 1); }
static void reads_two(struct side *a) { reads_shadow(a, 2); }

// Has found PROMOTE, which says that nothing comes on the shadow before, and has gone no further.
static void takes_promote(struct side *a)
{
	struct ds_shared *h = a->s->sh;

	ds_rx_take(a->s, false);
	CHECK(ds_rx_promoted(&a->s->seg, &h->rx, &h->carried) == 1 && h->carried == h->rx_read, "PROMOTE is not there");
	ds_on_rx(a->s, ON_PROMOTE);
}

// a's next n bytes are these.
static void reads(const char *what, struct side *a, const char *bytes)
{
	char b[16] = {0};
	size_t n = strlen(bytes);

	limit_read(a);
	ssize_t r = get(a, b, n, MSG_WAITALL);
	CHECK(r == (ssize_t)n && !memcmp(b, bytes, n), "%s: received %zd '%s' %s", what, r, b, r < 0 ? strerror(errno) : "");
}

// Bytes of the shadow that the killed one has written, or read, and not counted.
static void counts(void)
{
	pair_up(&c, &s);
	CHECK(put(&c, "one", 3, 0) == 3 && put(&c, "two", 3, 0) == 3, "send");
	ds_fall_back(s.s, s.fd);
	killed(&c, writes_back);
	CHECK(put(&c, "three", 5, 0) == 5, "send");
	reads("RETURNED", &s, "onetwothree");
	carries("RETURNED", &c, &s, "four");
	hang_up_both();

	pair_half();
	CHECK(send(s.fd, "one", 3, 0) == 3, "the shadow");
	killed(&c, reads_one);
	CHECK(put(&s, "two", 3, 0) == 3 && s.s->sh->tx_mode == TX_DIRECT, "it is not the case of this test");
	reads("before PROMOTE", &c, "netwo");
	direct_again("before PROMOTE");
	hang_up_both();

	pair_half();
	CHECK(send(s.fd, "one", 3, 0) == 3 && put(&s, "two", 3, 0) == 3, "send");
	reads("before the last", &c, "o");
	CHECK(c.s->sh->rx_mode == RX_CATCH_UP, "it is not the case of this test: %d", c.s->sh->rx_mode);
	killed(&c, reads_two);
	reads("the last before PROMOTE", &c, "two");
	direct_again("the last before PROMOTE");
	hang_up_both();

	pair_half();
	CHECK(put(&s, "one", 3, 0) == 3 && s.s->sh->tx_mode == TX_DIRECT, "it is not the case of this test");
	killed(&c, takes_promote);
	reads("PROMOTE alone", &c, "one");
	direct_again("PROMOTE alone");
	hang_up_both();
}

#ifndef DS_MSAN // where ds_kernel is not asked
static typeof(ds_kernel) kernel;

// The kernel, but the process is killed as it is about to ring.
static long kills_ringer(long nr, ...)
{
	long a[6];
	va_list l;

	va_start(l, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(l, long);
	va_end(l);
	if (nr == SYS_sendto)
		_exit(failures != 0);
	return kernel(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void rings(struct side *a, bool sends)
{
	char b[3];

	kernel = ds_kernel;
	ds_kernel = kills_ringer;
	if (sends)
		put(a, "one", 3, 0);
	else
		get(a, b, 3, 0);
	CHECK(false, "it does not ring");
}

static void sends_one(struct side *a) { rings(a, true); }
static void reads_and_rings(struct side *a) { rings(a, false); }

static bool is_rung(struct side *a)
{
	struct pollfd p = {.fd = a->s->seg.bell, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

// The server sleeps, and whom it waits for is killed before he has rung: his heir rings.
static void ringers(void)
{
	struct ds_shared *h;

	pair_up(&c, &s);
	ds_attend(&s.s->seg, &s.s->sh->attention, DS_ARM_RX, 0);
	killed(&c, sends_one);
	CHECK(!is_rung(&s), "it was rung");
	ds_tx_take(c.s, false);
	ds_unlock(&c.s->sh->tx_lock, false);
	CHECK(is_rung(&s), "the heir of a sender has not rung");
	hang_up_both();

	pair_up(&c, &s);
	CHECK(put(&s, "one", 3, 0) == 3, "send");
	ds_attend(&s.s->seg, &s.s->sh->attention, DS_ARM_TX, 0);
	killed(&c, reads_and_rings);
	CHECK(!is_rung(&s), "it was rung");
	ds_rx_take(c.s, false);
	ds_unlock(&c.s->sh->rx_lock, false);
	CHECK(is_rung(&s), "the heir of a receiver has not rung");
	h = c.s->sh;
	CHECK(c.s->seg.own->consumed == h->rx.pos[h->rx.cur & 1].count, "it has not given all back");
	hang_up_both();
}
#endif

// Has noted what it gives back, or says, and the peer cannot see it yet.
static void notes_consumed(struct side *a)
{
	struct ds_shared *h = a->s->sh;
	struct ds_pos *p = &h->rx.pos[h->rx.cur & 1];

	ds_rx_take(a->s, false);
	p->count++;
	h->rx.consumed = p->count;
}

static void notes_fallen_back(struct side *a)
{
	struct ds_shared *h = a->s->sh;

	ds_rx_take(a->s, false);
	a->s->seg.own->fallback_slot = h->rx.pos[h->rx.cur & 1].count;
	h->attention.word |= DS_FALLEN_BACK;
}

// Has passed over what the shadow gave before it ended, and has gone no further.
static void forwards(struct side *a)
{
	struct ds_shared *h = a->s->sh;
	uint64_t given = 0;
	bool ended = false;

	ds_rx_take(a->s, false);
	while (!ended && ds_shadow_given(a->fd, h->rx_read, &given, &ended))
		usleep(100);
	CHECK(h->rx_mode == RX_RETURNING && ended && ds_rx_forward(&a->s->seg, &h->rx, given - h->carried) == 0, "it is not the case of this test");
}

static void half_told(void)
{
	struct ds_shared *h;
	char b[8] = {0};

	pair_up(&c, &s);
	CHECK(put(&s, "one", 3, 0) == 3, "send");
	killed(&c, notes_consumed);
	ds_rx_take(c.s, false);
	h = c.s->sh;
	CHECK(c.s->seg.own->consumed == h->rx.pos[h->rx.cur & 1].count, "what was noted is not given back");
	ds_unlock(&h->rx_lock, false);
	hang_up_both();

	pair_up(&c, &s);
	CHECK(put(&s, "one", 3, 0) == 3, "send");
	killed(&c, notes_fallen_back);
	ds_ready(c.s, c.fd, POLLIN);
	CHECK(put(&s, "two", 3, 0) == 3, "send");
	reads("FALLEN_BACK noted", &c, "onetwo");
	hang_up_both();

	pair_up(&c, &s);
	h = s.s->sh;
	CHECK(put(&s, "one", 3, 0) == 3 && put(&s, "two", 3, 0) == 3, "send");
	ds_fall_back(c.s, c.fd);
	ds_tx_take(s.s, false);
	CHECK(ds_tx_return_begin(&s.s->seg, &h->tx, &h->attention, &h->return_slot, &h->return_off) == 0, "RETURNED");
	ds_on_tx(s.s, ON_FALLEN_BACK);
	ds_on_tx(s.s, ON_ENDED);
	ds_unlock(&h->tx_lock, false);
	CHECK(send(s.fd, "onet", 4, 0) == 4 && shutdown(s.fd, SHUT_WR) == 0, "the shadow");
	reads("returning", &c, "onet");
	killed(&c, forwards);
	reads("the rest", &c, "wo");
	CHECK(get(&c, b, sizeof b, 0) == 0, "no end: %s", strerror(errno));
	hang_up_both();
}

static void senders(void)
{
	char b[8];

	pair_up(&c, &s);
	killed(&c, says_demote);
	carries("DEMOTE", &c, &s, "one");
	carries("DEMOTE", &c, &s, "two");
	CHECK(c.s->sh->tx_mode == TX_BACK && s.s->sh->rx_mode == RX_BACK, "DEMOTE: %d, %d", c.s->sh->tx_mode, s.s->sh->rx_mode);
	hang_up_both();

	pair_up(&c, &s);
	killed(&c, says_pause);
	carries("PAUSE", &c, &s, "one");
	direct_again("PAUSE");
	hang_up_both();

	/* The receiver falls back after the sender has said that PAUSE stands. */
	pair_up(&c, &s);
	CHECK(put(&c, "one", 3, 0) == 3, "send");
	killed(&c, says_pause);
	ds_fall_back(s.s, s.fd);
	limit_read(&s);
	CHECK(get(&s, b, 3, MSG_WAITALL) == 3 && !memcmp(b, "one", 3), "PAUSE stands: %s", strerror(errno));
	carries("PAUSE stands", &c, &s, "two");
	hang_up_both();

	pair_up(&c, &s);
	killed(&c, says_shutdown);
	CHECK(put(&c, "x", 1, 0) == -1 && errno == EPIPE, "SHUTDOWN: %s", strerror(errno));
	limit_read(&s);
	CHECK(get(&s, b, sizeof b, 0) == 0, "SHUTDOWN: no end");
	hang_up_both();

	pair_half();
	killed(&s, says_promote);
	carries("PROMOTE", &s, &c, "one");
	direct_again("PROMOTE");
	hang_up_both();
}

static void receivers(void)
{
	uint8_t off = 1;
	char b[8] = {0};

	pair_half();
	CHECK(put(&s, "one", 3, 0) == 3 && s.s->sh->tx_mode == TX_DIRECT, "it is not the case of this test");
	killed(&c, finds_promote);
	limit_read(&c);
	CHECK(get(&c, b, 3, MSG_WAITALL) == 3 && !memcmp(b, "one", 3), "PROMOTE found: '%s' %s", b, strerror(errno));
	direct_again("PROMOTE found");
	hang_up_both();

	pair_up(&c, &s);
	s.s->seg.off = &off;
	CHECK(put(&s, "one", 3, 0) == 3 && s.s->sh->tx_mode == TX_PAUSED, "it is not the case of this test: %d", s.s->sh->tx_mode);
	killed(&c, finds_pause);
	limit_read(&c);
	CHECK(get(&c, b, 3, MSG_WAITALL) == 3 && !memcmp(b, "one", 3), "PAUSE found: '%s' %s", b, strerror(errno));
	off = 0;
	direct_again("PAUSE found");
	hang_up_both();

	pair_up(&c, &s);
	CHECK(put(&s, "one", 3, 0) == 3, "send");
	killed(&c, falls_back);
	CHECK(put(&s, "two", 3, 0) == 3, "send");
	limit_read(&c);
	CHECK(get(&c, b, 6, MSG_WAITALL) == 6 && !memcmp(b, "onetwo", 6), "FALLEN_BACK: '%s' %s", b, strerror(errno));
	hang_up_both();
}

// ---- two at once: one moves a direction, and the other breaks both in the middle of that

static void table_may(int access)
{
	uintptr_t from = (uintptr_t)ds_rx_steps, to = (uintptr_t)ds_tx_steps, page = (uintptr_t)sysconf(_SC_PAGESIZE);

	if (from > to) {
		uintptr_t other = from;
		from = to;
		to = other;
	}
	from &= ~(page - 1);
	mprotect((void *)from, to - from + page, access);
}

// The step reads the table: it knows by now in which state the direction was.
static void on_fault(int sig)
{
	(void)sig;
	table_may(PROT_READ);
	ds_break(c.s);
}

static void at_once(bool rx)
{
	struct ds_shared *h;
	struct sigaction a = {.sa_handler = on_fault, .sa_flags = SA_NODEFER}, before;

	pair_up(&c, &s);
	h = c.s->sh;
	sigaction(SIGSEGV, &a, &before);
	rx ? ds_rx_take(c.s, false) : ds_tx_take(c.s, false);
	table_may(PROT_NONE);
	rx ? ds_on_rx(c.s, ON_DEMOTE) : ds_on_tx(c.s, ON_DEMOTE);
	table_may(PROT_READ);
	ds_unlock(rx ? &h->rx_lock : &h->tx_lock, false);
	sigaction(SIGSEGV, &before, NULL);
	CHECK(ds_mode(&h->tx_mode) == TX_BROKEN && ds_mode(&h->rx_mode) == RX_BROKEN, "a direction that was broken has moved on: %d, %d", ds_mode(&h->tx_mode),
	      ds_mode(&h->rx_mode));
	hang_up_both();
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	senders();
	receivers();
	counts();
#ifndef DS_MSAN
	ringers();
#endif
	half_told();
	at_once(false);
	at_once(true);
	ends_stop(broker, path);
	printf("inherit: %d failed\n", failures);
	return failures != 0;
}

/* In which state each direction is, how it moves to the next, what the statistics say of it, and
 * whether the peer is there. */
#include "conn/inner.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Tells the statistics that s is direct, and by what path. */
static void say_direct(struct ds_sock *s)
{
	int path = DS_PATH_MEMORY;

	if (ds_seg_peer_relayed(&s->seg))
		path = ds_seg_peer_hardware(&s->seg) ? DS_PATH_RDMA : DS_PATH_FABRIC;
	ds_stats_direct(s->entry, path);
}

int ds_why_back(const struct ds_sock *s)
{
	int back = ds_seg_back(&s->seg);

	return back == DS_BACK_SWITCH ? DS_WHY_SWITCHED_OFF : back ? DS_WHY_NETWORK : DS_WHY_PEER;
}

/* With a direction's lock: the statistics follow the modes. A peer that has fallen back
 * has gone back to TCP, also before anything was direct. */
void ds_say_mode(struct ds_sock *s)
{
	const struct ds_shared *h = s->sh;
	int tx = ds_mode(&h->tx_mode), rx = ds_mode(&h->rx_mode);
	bool back = (tx == TX_BACK && rx == RX_BACK) || (ds_goes_by_shadow(tx) && rx == RX_SHADOW && ds_seg_back(&s->seg));

	if (tx == TX_DIRECT || rx == RX_DIRECT)
		say_direct(s);
	else if (s->entry && ((back && ds_mode(&s->entry->mode) == DS_MODE_DIRECT) ||
			      (ds_mode(&s->entry->reason) == DS_WHY_IDLE && (back || (ds_seg_peer_attention(&s->seg) & DS_FALLEN_BACK)))))
		ds_stats_say(s->entry, DS_MODE_DEMOTED, ds_why_back(s));
}

void ds_say_again(struct ds_sock *s)
{
	const struct ds_shared *h = s->sh;
	int tx = ds_mode(&h->tx_mode), rx = ds_mode(&h->rx_mode);
	bool ours = __atomic_load_n(&h->attention.word, __ATOMIC_RELAXED) & DS_FALLEN_BACK;

	if (tx == TX_DIRECT || rx == RX_DIRECT)
		say_direct(s);
	else if (tx >= TX_BACK || rx >= RX_FALLEN_BACK || (ds_seg_peer_attention(&s->seg) & DS_FALLEN_BACK))
		ds_stats_say(s->entry, DS_MODE_DEMOTED, ours ? DS_WHY_PROGRAM : ds_why_back(s));
	else if (tx == TX_SHADOW && rx == RX_SHADOW)
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_IDLE);
	else
		say_direct(s);
}

/* Who has a direction's lock moves it; who has either lock may break both. So a step is one
 * exchange: what another thread or process has broken meanwhile stays broken.
 *
 * A holder that is killed, or that a jump leaves, may have told the peer of a step and not have
 * made it. The peer goes by what it was told, in the queue or by a flag, and so does the next
 * holder (ds_tx_inherit, ds_rx_inherit): no state could be stored together with either.
 *
 * SPEC 9.4, but for what this library does not have: tcp, a state without a segment, and reset,
 * for which ds_break_for ends both directions. Nothing but this file changes
 * the state of a direction. */
const struct ds_step ds_rx_steps[] = {
	{RX_SHADOW, ON_PROMOTE, RX_CATCH_UP},
	{RX_SHADOW, ON_GONE, RX_BACK},
	{RX_SHADOW, ON_FALL_BACK, RX_FALLEN_BACK},
	{RX_CATCH_UP, ON_REACHED, RX_DIRECT},
	{RX_CATCH_UP, ON_CUT, RX_BROKEN},
	{RX_CATCH_UP, ON_FAILED, RX_BACK},
	{RX_CATCH_UP, ON_FALL_BACK, RX_FALLEN_BACK},
	{RX_DIRECT, ON_SHUTDOWN, RX_ENDED},
	{RX_DIRECT, ON_DEMOTE, RX_BACK},
	{RX_DIRECT, ON_PAUSE, RX_SHADOW},
	{RX_DIRECT, ON_GONE, RX_BACK},
	{RX_DIRECT, ON_FALL_BACK, RX_FALLEN_BACK},
	{RX_FALLEN_BACK, ON_QUEUE, RX_BEFORE},
	{RX_FALLEN_BACK, ON_RETURNED, RX_RETURNING},
	{RX_FALLEN_BACK, ON_HELD, RX_BACK},
	{RX_RETURNING, ON_HELD, RX_BACK},
	{RX_RETURNING, ON_ENDED, RX_REST},
	{RX_RETURNING, ON_CUT, RX_BROKEN},
	{RX_REST, ON_READ, RX_BACK},
	{DS_NO_STEP, 0, 0},
};

/* SPEC 9.5, with the same exception. */
const struct ds_step ds_tx_steps[] = {
	{TX_SHADOW, ON_PROMOTE, TX_DIRECT},
	{TX_SHADOW, ON_FALLEN_BACK, TX_BACK},
	{TX_SHADOW, ON_LEAVE, TX_BACK},
	{TX_PAUSED, ON_RESUME, TX_SHADOW},
	{TX_PAUSED, ON_FALLEN_BACK, TX_BACK},
	{TX_PAUSED, ON_LEAVE, TX_BACK},
	{TX_DIRECT, ON_FALLEN_BACK, TX_RETURNING},
	{TX_DIRECT, ON_DEMOTE, TX_BACK},
	{TX_DIRECT, ON_PAUSE, TX_PAUSED},
	{TX_DIRECT, ON_SHUTDOWN, TX_ENDED},
	{TX_DIRECT, ON_GONE, TX_BACK},
	{TX_DIRECT, ON_KILLED, TX_BROKEN},
	{TX_RETURNING, ON_WRITTEN, TX_BACK},
	{TX_RETURNING, ON_ENDED, TX_ENDED},
	{TX_RETURNING, ON_FAILED, TX_BACK},
	{DS_NO_STEP, 0, 0},
};

/* Whatever breaks the inbound direction owes the program an error: with none, a read would say
 * that the peer has ended well. */
static void owe_break(struct ds_sock *s)
{
	if (!DS_GET(s->sh->owed))
		ds_owe(s, ds_seg_peer_late(&s->seg) ? ETIMEDOUT : ECONNRESET);
}

/* Moves the outbound direction from a state to another, also in the statistics. */
static void tx_is(struct ds_sock *s, int from, int to)
{
	uint8_t was = (uint8_t)from;

	__atomic_compare_exchange_n(&s->sh->tx_mode, &was, (uint8_t)to, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	ds_say_mode(s);
}

/* The same, inbound. */
static void rx_is(struct ds_sock *s, int from, int to)
{
	uint8_t was = (uint8_t)from;

	if (to == RX_BROKEN)
		owe_break(s);
	if (__atomic_compare_exchange_n(&s->sh->rx_mode, &was, (uint8_t)to, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED) && to == RX_ENDED)
		ds_count(&s->seg, DS_C_RX_SHUTDOWN, 1);
	ds_say_mode(s);
}

void ds_on_rx(struct ds_sock *s, int what)
{
	struct ds_shared *h = s->sh;
	int mode = ds_mode(&h->rx_mode), to = ds_leads(ds_rx_steps, mode, what);

	if (what == ON_FALL_BACK && to != DS_NO_STEP)
		h->rx_before = (uint8_t)mode;
	if (to == RX_BEFORE)
		to = h->rx_before;
	if (to != DS_NO_STEP)
		rx_is(s, mode, to);
	else if (mode != RX_BROKEN)
		ds_break(s);
}

void ds_on_tx(struct ds_sock *s, int what)
{
	int mode = ds_mode(&s->sh->tx_mode), to = ds_leads(ds_tx_steps, mode, what);

	if (to != DS_NO_STEP)
		tx_is(s, mode, to);
	else if (mode != TX_BROKEN)
		ds_break(s);
}

void ds_tx_inherit(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;
	int mode = ds_mode(&h->tx_mode);
	unsigned said = ds_tx_recover(&s->seg, &h->tx, &h->attention);

	if (said == DS_PROMOTE && mode == TX_SHADOW)
		ds_on_tx(s, ON_PROMOTE);
	if (said >= DS_SHUTDOWN && said != DS_PROMOTE && mode == TX_DIRECT && ds_tx_stands(&s->seg, &h->attention, said) == 0)
		ds_on_tx(s, said == DS_SHUTDOWN ? ON_SHUTDOWN : said == DS_PAUSE ? ON_PAUSE : ON_DEMOTE);
}

void ds_rx_inherit(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;
	int mode = ds_mode(&h->rx_mode);

	h->rx_recount = 1;
	ds_rx_recover(&s->seg, &h->rx, &h->attention, mode == RX_SHADOW);
	/* One that fell back before, and reads the queue all the same, finds that out again. */
	if (mode <= RX_DIRECT && (__atomic_load_n(&h->attention.word, __ATOMIC_RELAXED) & DS_FALLEN_BACK))
		ds_on_rx(s, ON_FALL_BACK);
}

/* A direction that has fallen back, and was about to be direct, has read what PROMOTE said: it
 * would be. With the lock of rx. */
void ds_rx_caught_up(struct ds_sock *s)
{
	if (ds_mode(&s->sh->rx_mode) == RX_FALLEN_BACK)
		s->sh->rx_before = RX_DIRECT;
	else
		ds_on_rx(s, ON_REACHED);
}

void ds_break_for(struct ds_sock *s, int why)
{
	__atomic_store_n(&s->sh->tx_mode, TX_BROKEN, __ATOMIC_RELEASE);
	if (ds_mode(&s->sh->rx_mode) != RX_BROKEN) {
		owe_break(s);
		__atomic_store_n(&s->sh->rx_mode, RX_BROKEN, __ATOMIC_RELEASE);
	}
	ds_stats_say(s->entry, DS_MODE_DEMOTED, why);
	/* The peer finds end of file on its doorbell, as do our own sleepers. */
	ds_syscall(SYS_shutdown, s->seg.bell, SHUT_RDWR);
}

void ds_break_tx(struct ds_sock *s)
{
	__atomic_store_n(&s->sh->owed, EPIPE, __ATOMIC_RELAXED);
	ds_on_tx(s, ON_KILLED);
	ds_stats_say(s->entry, DS_MODE_DEMOTED, DS_WHY_PEER);
}

void ds_break(struct ds_sock *s) { ds_break_for(s, DS_WHY_BREACH); }

void ds_back(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;

	__atomic_store_n(&h->tx_mode, TX_BACK, __ATOMIC_RELEASE);
	__atomic_store_n(&h->rx_mode, RX_BACK, __ATOMIC_RELEASE);
	ds_stats_say(s->entry, DS_MODE_DEMOTED, DS_WHY_PROGRAM);
}

/* What the kernel reports of a socket that has failed. */
enum { FAILED = POLLERR | POLLHUP };

/* The shadow has come to its end. The peer says in the segment that a direction ends before it ends
 * it on the shadow, and no node lets an end overtake that: so if the queue does not say it, the
 * program at the other end was killed. Whether a node at this one was, its bell says. */
static bool ended(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s), killed;

	if (ds_mode(&h->rx_mode) != RX_DIRECT || !ds_rx_take(s, alone))
		return false;
	killed = ds_mode(&h->rx_mode) == RX_DIRECT && !ds_mode(&h->rx_shut) && !ds_rx_over(&s->seg, &h->rx);
	if (killed && !ds_seg_peer_relayed(&s->seg))
		__atomic_store_n(&h->gone, 1, __ATOMIC_RELEASE);
	else if (killed && (killed = ds_rx_look(&s->seg, &h->rx) == DS_AGAIN))
		ds_on_rx(s, ON_GONE);
	ds_unlock(&h->rx_lock, alone);
	return killed;
}

unsigned ds_shadow_says(struct ds_sock *s, int fd, unsigned said)
{
	enum { READ = POLLIN | POLLRDNORM | POLLRDHUP };

	if (!s->sh || !ds_has_segment(s) || ds_mode(&s->sh->gone))
		return 0;
	int saved = errno;
	bool failed = (said & FAILED) == FAILED && ds_shadow_failed(fd, DS_GET(s->sh->rx_read));
	errno = saved;
	if (failed) {
		__atomic_store_n(&s->sh->gone, 1, __ATOMIC_RELEASE);
		return READ | TX_EVENTS;
	}
	return (said & POLLRDHUP) && ended(s) ? READ : 0;
}

uint64_t ds_check_peer_at(struct ds_sock *s, int fd, uint64_t t)
{
	struct timespec none = {0, 0};
	int saved = errno;

	if (!ds_has_segment(s) || ds_mode(&s->sh->gone))
		return t;
	/* Read after the look at the state: until then another thread may be writing s->seg. */
	struct pollfd p[2] = {{.fd = fd}, {.fd = s->seg.bell}};
	DS_SET(s->checked, t);
	/* The bell is not read: a byte that nobody has taken yet would hide its end. */
	if (ds_syscall(SYS_ppoll, p, 2, &none, NULL, 0) > 0) {
		if (p[1].revents)
			__atomic_store_n(&s->sh->gone, 1, __ATOMIC_RELEASE);
		else
			ds_shadow_says(s, fd, (unsigned short)p[0].revents);
	}
	errno = saved;
	return t;
}

void ds_look_at_peer(struct ds_sock *s, int fd) { ds_check_peer(s, fd, true); }

bool ds_ask_peer(struct ds_sock *s, int fd)
{
	uint64_t before = DS_GET(s->checked);

	return s->sh && ds_check_peer(s, fd, false) && DS_GET(s->checked) != before;
}

bool ds_left(struct ds_sock *s)
{
	return __atomic_load_n(&s->sh->gone, __ATOMIC_ACQUIRE) || (ds_seg_peer_attention(&s->seg) & (DS_CLOSED | DS_RESET));
}

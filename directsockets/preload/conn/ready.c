/* Readiness, as poll(2) would report it. */
#include "conn/inner.h"

/* Is there as much to be read as SO_RCVLOWAT asks for, or will no more come here? The segment has
 * something. With the lock of rx. */
static bool enough(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;
	uint64_t before = ds_mode(&h->rx_mode) == RX_CATCH_UP ? ds_rx_ahead(h) : 0, cap = s->seg.ring / 2, low = DS_GET(s->lowat);

	return before + ds_rx_readable(&s->seg, &h->rx) >= (low < cap ? low : cap) || ds_rx_over(&s->seg, &h->rx) || ds_left(s);
}

/* POLLRDHUP, if events asks for it and the last message is SHUTDOWN. It holds as soon as ds_edges
 * counts that message, or the edge would be told without it. With the lock of rx. */
static unsigned ends(struct ds_sock *s, unsigned events)
{
	if (!(events & POLLRDHUP))
		return 0;
	uint64_t seen = __atomic_load_n(&s->seen, __ATOMIC_RELAXED);
	bool over = ds_rx_ends(&s->seg, &s->sh->rx, &seen);
	__atomic_store_n(&s->seen, seen, __ATOMIC_RELAXED);
	return over ? POLLRDHUP : 0;
}

/* Adds to r which events of receiving hold. Takes the lock of rx. */
static void ready_rx(struct ds_sock *s, int fd, unsigned events, struct ds_ready *r)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s);

	if (!ds_rx_take(s, alone)) {
		r->now |= events & RX_EVENTS;
		return;
	}
	ds_rx_update(s, ds_mode(&h->rx_mode) == RX_DIRECT ? fd : ds_still(s, fd));
	switch (ds_mode(&h->rx_mode)) {
	case RX_DIRECT:
		if (ds_rx_look(&s->seg, &h->rx) == 1 && (DS_GET(s->lowat) <= 1 || enough(s)))
			r->now |= events & RX_EVENTS;
		r->now |= ends(s, events);
		break;
	case RX_REST:
		r->now |= events & RX_EVENTS;
		break;
	case RX_BROKEN:
		r->now |= POLLHUP | (DS_GET(h->owed) ? POLLERR : 0);
		/* fall through */
	case RX_ENDED:
		r->now |= events & (RX_EVENTS | POLLRDHUP);
		break;
	case RX_CATCH_UP: /* the kernel does not count what the segment has */
		if (DS_GET(s->lowat) > 1 && ds_rx_look(&s->seg, &h->rx) == 1 && enough(s))
			r->now |= events & RX_EVENTS;
		r->now |= ends(s, events);
		/* fall through */
	default:
		r->kernel |= events & RX_EVENTS;
	}
	if (__atomic_load_n(&h->rx_shut, __ATOMIC_RELAXED))
		r->now |= events & (RX_EVENTS | POLLRDHUP);
	ds_unlock(&h->rx_lock, alone);
}

/* Adds to r which events of sending hold. Takes the lock of tx. */
static void ready_tx(struct ds_sock *s, int fd, unsigned events, struct ds_ready *r)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s);

	if (!ds_tx_take(s, alone)) {
		r->now |= events & TX_EVENTS;
		return;
	}
	ds_tx_update(s, ds_mode(&h->tx_mode) == TX_DIRECT ? fd : ds_still(s, fd));
	switch (ds_mode(&h->tx_mode)) {
	case TX_DIRECT:
		switch (ds_tx_room(&s->seg, &h->tx)) {
		case 0:
			/* Only a program's poll asks for POLLHUP: a close that lingers waits on. */
			if ((events & POLLHUP) && ds_tx_gives_up(s, ds_still(s, fd), false))
				r->kernel |= events & TX_EVENTS;
			break;
		case DS_BREACH:
			ds_break(s);
			/* fall through */
		default:
			r->now |= events & TX_EVENTS;
		}
		break;
	case TX_ENDED:
	case TX_BROKEN:
		r->now |= events & TX_EVENTS; /* EPIPE, at once */
		break;
	default: /* TX_RETURNING too: it goes on when the shadow takes more */
		r->kernel |= events & TX_EVENTS;
	}
	ds_unlock(&h->tx_lock, alone);
}

struct ds_ready ds_ready(struct ds_sock *s, int fd, unsigned events)
{
	struct ds_ready r = {0, events};

	if (!s->sh)
		return r;
	ds_tick(s, fd);
	if (!ds_has_segment(s))
		return r;
	r.kernel = events & ~(unsigned)(RX_EVENTS | TX_EVENTS);
	if (__builtin_expect(ds_zerocopy_left(s), 0))
		r.now |= POLLERR;
	if (events & (RX_EVENTS | POLLRDHUP))
		ready_rx(s, fd, events, &r);
	if (events & TX_EVENTS)
		ready_tx(s, fd, events, &r);
	else
		ds_tx_attend(s, fd);
	if (__builtin_expect(ds_mode(&s->sh->tx_mode) == TX_BROKEN, 0))
		r.now |= POLLHUP | (DS_GET(s->sh->owed) ? POLLERR : 0);
	return r;
}

uint64_t ds_edges(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;

	if (!h || !ds_has_segment(s))
		return 0;
	uint64_t seen = __atomic_load_n(&s->seen, __ATOMIC_RELAXED);
	uint64_t arrived = ds_rx_arrived(&s->seg, &h->rx, &seen);
	bool left = ds_left(s), end = left || ds_mode(&h->rx_mode) == RX_ENDED || ds_rx_ends(&s->seg, &h->rx, &seen);
	uint64_t ends = (uint64_t)ds_mode(&h->rx_shut) | (uint64_t)(!left && ds_mode(&h->rx_mode) == RX_BROKEN) << 1 | (uint64_t)end << 2 |
			(uint64_t)(ds_mode(&h->tx_mode) == TX_ENDED || ds_mode(&h->tx_mode) == TX_BROKEN) << 3;
	if (__builtin_expect(__atomic_load_n(&h->zc_own, __ATOMIC_RELAXED), 0)) /* an error that the queue has is an edge, too */
		ends |= (uint64_t)(__atomic_load_n(&h->zc_next, __ATOMIC_ACQUIRE) & 0xf) << 4;
	__atomic_store_n(&s->seen, seen, __ATOMIC_RELAXED);
	return arrived | ends << DS_EDGE_ENDS;
}

uint64_t ds_arrival(struct ds_sock *s, uint64_t told)
{
	return s->sh && ds_has_segment(s) ? ds_rx_stamp(&s->seg, &s->sh->rx, told & ((1ull << DS_EDGE_ENDS) - 1)) : 0;
}

/* Is s direct both ways, and has nothing happened to it but what the inbound queue says? */
static inline bool undisturbed(const struct ds_sock *s)
{
	enum { ENDED = DS_FALLEN_BACK | DS_CLOSED | DS_RESET | DS_RETURNED | DS_STANDS };
	const struct ds_shared *h = s->sh;

	return ds_mode(&h->rx_mode) == RX_DIRECT && ds_mode(&h->tx_mode) == TX_DIRECT && !(ds_seg_peer_attention(&s->seg) & ENDED) &&
	       !ds_mode(&h->gone) && !ds_mode(&h->rx_shut) && !ds_zerocopy_left(s);
}

bool ds_quiet(struct ds_sock *s) { return !ds_rx_there(&s->seg, &s->sh->rx) && undisturbed(s); }

bool ds_only_data(struct ds_sock *s)
{
	return undisturbed(s) && DS_GET(s->lowat) <= 1 && ds_rx_bytes(&s->seg, &s->sh->rx);
}

int ds_direct(struct ds_sock *s)
{
	if (!s->sh || !ds_has_segment(s))
		return 0;
	return (__atomic_load_n(&s->sh->tx_mode, __ATOMIC_ACQUIRE) == TX_DIRECT ? 1 : 0) |
	       (__atomic_load_n(&s->sh->rx_mode, __ATOMIC_ACQUIRE) == RX_DIRECT ? 2 : 0);
}

bool ds_has_rung(struct ds_sock *s, uint64_t *seen)
{
	if (!s->sh || !ds_has_segment(s))
		return false;
	uint64_t rings = ds_seg_peer_rings(&s->seg);
	if (rings == *seen)
		return false;
	*seen = rings;
	return true;
}

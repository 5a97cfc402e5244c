/* SO_LINGER, of which there are two: the program's, and that of the shadow. They are one, but while
 * the shadow is on guard.
 *
 *   the program's ── returning, and nobody at the other end has the segment ──▶ on guard
 *        ▲                                                                          │
 *        └─────────────────── all that was left there is on the shadow ─────────────┘
 */
#include "conn/inner.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Sets *l to the program's, with the lock of tx. False: the kernel does not say. */
static bool programs(struct ds_sock *s, int fd, struct linger *l)
{
	socklen_t n = sizeof *l;

	*l = (struct linger){s->sh->return_linger.onoff, s->sh->return_linger.linger};
	return s->sh->return_orphan || REAL(getsockopt, fd, SOL_SOCKET, SO_LINGER, l, &n) == 0;
}

void ds_linger_guard(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	struct linger l = {0};

	ds_check_peer(s, fd, true);
	bool said = (ds_seg_peer_attention(&s->seg) & (DS_CLOSED | DS_RESET)) && !ds_seg_peer_relayed(&s->seg);
	if (!ds_mode(&h->gone) || said || !programs(s, fd, &l))
		return;
	uint8_t was = h->return_orphan;
	h->return_linger.onoff = l.l_onoff;
	h->return_linger.linger = l.l_linger;
	/* Before the shadow is: an heir does not take the guard's for the program's. Each look sets
	 * it again, since one that was killed may not have. */
	__atomic_store_n(&h->return_orphan, 1, __ATOMIC_RELEASE);
	l = (struct linger){1, 0};
	if (REAL(setsockopt, fd, SOL_SOCKET, SO_LINGER, &l, sizeof l) != 0)
		DS_SET(h->return_orphan, was);
}

void ds_linger_free(struct ds_sock *s, int fd)
{
	struct linger l;

	if (s->sh->return_orphan && programs(s, fd, &l))
		REAL(setsockopt, fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	s->sh->return_orphan = 0;
}

int ds_linger_set(struct ds_sock *s, int fd, const void *value, socklen_t len)
{
	struct ds_shared *h = s->sh;
	struct linger l;
	bool alone, taken;

	if (!h || !ds_has_segment(s))
		return REAL(setsockopt, fd, SOL_SOCKET, SO_LINGER, value, len);
	alone = ds_alone(s);
	taken = ds_tx_take(s, alone);
	int r = 0;
	if (h->return_orphan && (int)len >= (int)sizeof l && ds_readable(value, sizeof l)) {
		memcpy(&l, value, sizeof l);
		h->return_linger.onoff = l.l_onoff != 0;
		if (l.l_onoff)
			h->return_linger.linger = l.l_linger;
	} else {
		r = REAL(setsockopt, fd, SOL_SOCKET, SO_LINGER, value, len);
	}
	if (taken)
		ds_unlock(&h->tx_lock, alone);
	return r;
}

void ds_linger_get(struct ds_sock *s, void *value, socklen_t len)
{
	struct ds_shared *h = s->sh;
	bool alone;

	if (!h || !ds_has_segment(s))
		return;
	alone = ds_alone(s);
	if (!ds_tx_take(s, alone))
		return;
	if (h->return_orphan)
		memcpy(value, &h->return_linger, len < sizeof h->return_linger ? len : sizeof h->return_linger);
	ds_unlock(&h->tx_lock, alone);
}

bool ds_linger_resets(struct ds_sock *s, int fd)
{
	struct linger l;

	return programs(s, fd, &l) && l.l_onoff && !l.l_linger;
}

int ds_linger_seconds(struct ds_sock *s, int fd)
{
	struct linger l = {0};
	bool alone = ds_alone(s);

	if (!ds_tx_take(s, alone))
		return 0;
	bool known = programs(s, fd, &l);
	ds_unlock(&s->sh->tx_lock, alone);
	return known && l.l_onoff ? l.l_linger : 0;
}

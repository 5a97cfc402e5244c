/* The inbound direction returns to TCP by position (SPEC 5.5): what the peer has left in the
 * segment comes on the shadow, and whatever the shadow does not give before it ends is still in the
 * segment.
 *
 *   RX_FALLEN_BACK ── RETURNED ──▶ RX_RETURNING ── the shadow holds it all ──▶ RX_BACK
 *       │                        │                                      ▲
 *       │ the peer has ended     └── the shadow has ended before ──▶ RX_REST
 *       ▼ the direction, or is gone
 *   where it was before
 */
#include "conn/inner.h"

#include <errno.h>
#include <sys/syscall.h>

void ds_rx_fall_back(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;
	int mode = ds_mode(&h->rx_mode);

	if (mode > RX_DIRECT || ds_seg_fall_back(&s->seg, &h->rx, &h->attention) < 0)
		return;
	ds_on_rx(s, ON_FALL_BACK);
}

/* True if the shadow has bytes or has ended. Asks the kernel. */
static bool shadow_speaks(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
	struct timespec none = {0, 0};

	return ds_syscall(SYS_ppoll, &p, 1, &none, NULL, 0) > 0;
}

/* True if the shadow has ended, which may be known before the doorbell says that the peer is
 * gone. */
static bool shadow_ended(struct ds_sock *s, int fd)
{
	uint64_t n;
	bool ended = false;

	ds_shadow_given(fd, s->sh->rx_read, &n, &ended);
	return ended;
}

/* The peer has set RETURNED: finds how many bytes the shadow has had when it has all that the peer
 * left. */
static void returned(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;
	uint64_t n;

	switch (ds_rx_left(&s->seg, &h->rx, &h->carried, &n)) {
	case 1:
		h->held = h->carried + n;
		ds_on_rx(s, ON_RETURNED);
		break;
	case 0:
		ds_on_rx(s, ON_HELD);
		break;
	default:
		ds_break(s);
	}
}

/* RX_FALLEN_BACK: has the peer found it, or will it never? */
static void fallen_back(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	bool over = ds_rx_over(&s->seg, &h->rx); /* before the flags: STANDS may be of an earlier PAUSE */
	uint32_t a = ds_seg_peer_attention(&s->seg);

	if (!(a & DS_RETURNED) && (((a & DS_STANDS) && over) || (ds_left(s) && shadow_speaks(fd)) || shadow_ended(s, fd))) {
		a = ds_seg_peer_attention(&s->seg); /* it comes before what the peer writes to the shadow */
		if (!(a & DS_RETURNED))
			ds_on_rx(s, ON_QUEUE);
	}
	if (a & DS_RETURNED)
		returned(s);
}

/* RX_RETURNING: has the shadow all of the rest by now, or has it ended before? */
static void returning(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	uint64_t given;
	bool ended;
	int unread = 0;

	if (!ds_shadow_given(fd, h->rx_read, &given, &ended)) {
		ds_break(s); /* where its bytes continue is not to be found out */
	} else if (given >= h->held) {
		ds_on_rx(s, ON_HELD);
	} else if (ended && REAL(ioctl, fd, DS_INQ, &unread) == 0 && !unread) {
		/* Of what was sent before PROMOTE nothing is in the segment: TCP has lost it. */
		if (given < h->carried)
			ds_on_rx(s, ON_CUT);
		else if (ds_rx_forward(&s->seg, &h->rx, given - h->carried) < 0)
			ds_break(s);
		else
			ds_on_rx(s, ON_ENDED);
	}
}

bool ds_segment_unread(struct ds_sock *s)
{
	int mode = ds_mode(&s->sh->rx_mode);
	uint64_t carried, n = 0;

	if (mode <= RX_DIRECT || mode == RX_FALLEN_BACK)
		ds_rx_left(&s->seg, &s->sh->rx, &carried, &n);
	return n || mode == RX_RETURNING || mode == RX_REST;
}

void ds_rx_returning(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	int saved = errno;

	if (ds_mode(&h->rx_mode) == RX_FALLEN_BACK)
		fallen_back(s, fd);
	if (ds_mode(&h->rx_mode) == RX_RETURNING)
		returning(s, fd);
	if (ds_mode(&h->rx_mode) == RX_REST) {
		int how = ds_rx_look(&s->seg, &h->rx);

		if (how == DS_BREACH)
			ds_break(s);
		else if (how != 1)
			ds_on_rx(s, ON_READ); /* how the shadow ended follows */
	}
	errno = saved;
}

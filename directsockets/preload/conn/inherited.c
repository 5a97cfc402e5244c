/* What a program that inherits a connection, with the library or without, finds of it. */
#include "conn/inner.h"

#include <sys/syscall.h>

enum ds_unread ds_unread(struct ds_sock *s, int fd)
{
	enum ds_unread what = DS_UNREAD_NONE;

	if (!s->sh || !ds_has_segment(s))
		return what;
	bool alone = ds_alone(s);
	ds_check_peer(s, fd, true);
	if (!ds_rx_take(s, alone))
		return DS_UNREAD_NONE;
	ds_rx_update(s, fd);
	int mode = ds_mode(&s->sh->rx_mode);
	uint64_t given;
	bool ended = ds_left(s) || (mode <= RX_DIRECT && ds_rx_over(&s->seg, &s->sh->rx));
	if (mode == RX_REST || mode == RX_RETURNING) { /* the shadow has not all of it */
		bool over = false;

		ended = mode == RX_REST || !ds_shadow_given(fd, s->sh->rx_read, &given, &over) || over;
	}
	if (ds_segment_unread(s))
		what = ended ? DS_UNREAD_ENDED : DS_UNREAD_SOME;
	ds_unlock(&s->sh->rx_lock, alone);
	return what;
}

bool ds_handed(struct ds_sock *s, int fd)
{
	bool done = true;

	if (!s->sh || !ds_has_segment(s))
		return true;
	bool alone = ds_alone(s);
	if (ds_tx_take(s, alone)) {
		ds_tx_update(s, fd);
		done = ds_mode(&s->sh->tx_mode) != TX_RETURNING;
		ds_unlock(&s->sh->tx_lock, alone);
	}
	if (!done || ds_unread(s, fd) != DS_UNREAD_NONE)
		return false;
	if (ds_rx_take(s, alone)) {
		if (ds_mode(&s->sh->rx_mode) == RX_FALLEN_BACK)
			ds_on_rx(s, ON_HELD);
		ds_unlock(&s->sh->rx_lock, alone);
	}
	return true;
}

bool ds_bell_open(struct ds_sock *s)
{
	int domain = 0;
	socklen_t len = sizeof domain;

	if (!s->sh || !ds_has_segment(s))
		return false;
	return REAL(getsockopt, s->seg.bell, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

bool ds_hears(struct ds_sock *s, bool *rung)
{
	int waiting = 1;

	if (*rung)
		return REAL(ioctl, s->seg.bell, DS_OUTQ, &waiting) == 0 && !waiting;
	if ((ds_seg_peer_attention(&s->seg) & (DS_ARM_RX | DS_ARM_TX)) && REAL(ioctl, s->seg.bell, DS_OUTQ, &waiting) == 0 && !waiting)
		*rung = ds_syscall(SYS_sendto, s->seg.bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == 1;
	return false;
}

bool ds_only_here(const struct ds_sock *s) { return ds_single(s); }

pid_t *ds_writer(struct ds_sock *s) { return &s->sh->return_writer; }

void ds_own_fds(const struct ds_sock *s, int fds[2])
{
	fds[0] = s->seg.bell;
	fds[1] = s->wakefd;
}

bool ds_may_inherit(const struct ds_sock *s, int *side)
{
	*side = s->side;
	return ds_state_of(s) == CONN_EARLY && ds_single(s) && !__atomic_load_n(&s->sh->zc_next, __ATOMIC_RELAXED);
}

bool ds_stream(struct ds_sock *s, bool on)
{
	bool early;

	if (!s->sh || (!on && !DS_GET(s->stream)))
		return true;
	if (!ds_setup_lock())
		return false; /* in a signal handler, in the middle of it */
	early = !ds_has_segment(s);
	if (early || !on)
		DS_SET(s->stream, on);
	if (early && !ds_plain(s))
		ds_stats_say(s->entry, DS_MODE_TCP, on ? DS_WHY_STREAM : s->side ? DS_WHY_NO_OFFER : DS_WHY_NOT_YET);
	ds_setup_unlock();
	return early;
}

bool ds_is_stream(const struct ds_sock *s) { return DS_GET(s->stream); }

bool ds_leaves(const struct ds_sock *s) { return s->sh && ds_state_of(s) != CONN_LEFT && !ds_has_segment(s) && !ds_single(s); }

void ds_leave(struct ds_sock *s, bool direct)
{
	if (!s->sh || ds_state_of(s) == CONN_LEFT || (ds_has_segment(s) && !direct) || ds_single(s))
		return;
	ds_critical_begin(); /* a handler finds it done or not done */
	ds_sharer_leave(s);
	uint32_t n = __atomic_load_n(&s->sh->refs, __ATOMIC_RELAXED);
	while (n > 1 && !__atomic_compare_exchange_n(&s->sh->refs, &n, n - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	if (n > 1)
		ds_on(s, CONN_ON_LEAVE);
	ds_critical_end();
}

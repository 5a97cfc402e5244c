/* Where each direction is, the shadow or the segment, and how it moves from one to the other. */
#include "conn/inner.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Is the node lost that acts for a program on another host? */
static bool node_is_lost(struct ds_sock *s)
{
	bool gone = ds_mode(&s->sh->gone); /* before CLOSED is looked for: a node that closes sets that first */
	uint32_t a = ds_seg_peer_attention(&s->seg);

	return ds_seg_peer_relayed(&s->seg) && ((a & DS_RESET) || (!(a & DS_CLOSED) && gone));
}

/* True if that is so, and what it carried is lost, too. Then the connection is reset: the shadow
 * must not continue after lost data. One that has failed does not, and says why: that is what the
 * program is told. The caller holds a direction's lock. */
static bool lost(struct ds_sock *s, int fd)
{
	if (!node_is_lost(s))
		return false;
	/* Nothing is in transit: both directions are paused, and the peer has not promoted. */
	if (ds_seg_peer_holds(&s->seg) && ds_goes_by_shadow(ds_mode(&s->sh->tx_mode)))
		return false;
	if (!(ds_seg_peer_attention(&s->seg) & DS_RESET) && ds_shadow_failed(fd, DS_GET(s->sh->rx_read)))
		return false;
	ds_break_for(s, DS_WHY_UNREACHABLE);
	return true;
}

/* Was the peer killed with data unread that had been sent before? The kernel knows only of what is
 * on the shadow. */
static bool killed(struct ds_sock *s, int fd)
{
	const struct ds_shared *h = s->sh;
	int tx = ds_mode(&h->tx_mode), rx = ds_mode(&h->rx_mode), there = 0;

	uint64_t sent, end;
	bool left;

	if (!ds_mode(&h->gone) || (ds_seg_peer_attention(&s->seg) & (DS_FALLEN_BACK | DS_CLOSED | DS_RESET)) || ds_seg_peer_relayed(&s->seg) ||
	    (tx != TX_DIRECT && tx != TX_ENDED) || !ds_tx_unread(&s->seg, &h->tx, &sent, &left))
		return false;
	if (rx == RX_ENDED) /* TCP resets for what is sent later, too */
		return tx == TX_DIRECT;
	if (rx != RX_DIRECT && (rx != RX_SHADOW || REAL(ioctl, fd, DS_INQ, &there) < 0 || there))
		return false; /* what is unread on the shadow would be lost */
	end = ds_kernel_ended(fd);
	return end && (left || (sent && sent < end));
}

/* The peer is gone. If it was killed with data unread, the shadow is reset, as TCP would be. Where
 * one end had shut its direction down, the segment's directions say so: TCP tells ECONNRESET, or
 * after the peer's end EPIPE. True: they do, or the peer's node is lost. The caller holds a
 * direction's lock. */
static bool peer_is_lost(struct ds_sock *s, int fd)
{
	static const struct sockaddr none = {.sa_family = AF_UNSPEC};

	if (lost(s, fd))
		return true;
	if (!killed(s, fd))
		return false;
	if (ds_mode(&s->sh->tx_mode) == TX_ENDED) {
		ds_break_for(s, DS_WHY_PEER);
		return true;
	}
	int saved = errno, err;
	socklen_t len = sizeof err;
	bool half = ds_mode(&s->sh->rx_mode) == RX_ENDED;
	ds_syscall(SYS_connect, fd, &none, sizeof none); /* its error is ECONNRESET from now on */
	ds_syscall(SYS_shutdown, fd, SHUT_RDWR);
	if (half) {
		REAL(getsockopt, fd, SOL_SOCKET, SO_ERROR, &err, &len);
		ds_break_tx(s);
	}
	errno = saved;
	return half;
}

/* What returns to the shadow fd. */
struct to_shadow {
	int fd;
	bool known;	  /* it can be written to, and */
	uint64_t written; /* it has had so many of the next bytes */
};

/* Writes to the shadow as many of n bytes as it takes, but those that it has had: the number, or -1
 * and errno. arg: struct to_shadow. */
static ssize_t to_shadow(void *arg, const void *p, size_t n)
{
	struct to_shadow *to = arg;

	if (to->written) {
		n = n < to->written ? n : (size_t)to->written;
		to->written -= n;
		return (ssize_t)n;
	}
	ssize_t r = ds_syscall(SYS_sendto, to->fd, p, to->known ? n : 0, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	if (r == 0) {
		errno = EAGAIN; /* the kernel could not say how much */
		return -1;
	}
	return r;
}

bool ds_is_others(const struct ds_sock *s, int fd)
{
	struct ds_info now;

	return ds_addresses(fd, s->side, &now) &&
	       (memcmp(now.addr, s->info.addr, sizeof now.addr) != 0 || memcmp(now.port, s->info.port, sizeof now.port) != 0);
}

/* Has the shadow an error, and takes nothing more? To write would take the error, too, which the
 * program is to be told. */
static bool has_failed(int fd)
{
	struct pollfd p = {.fd = fd};
	struct timespec none = {0, 0};

	return ds_syscall(SYS_ppoll, &p, 1, &none, NULL, 0) > 0 && (p.revents & POLLERR) && (p.revents & POLLHUP);
}

/* TX_RETURNING: writes to the shadow what it takes of what the peer left. As ds_tx_return. With the
 * lock of tx. */
static int write_back(struct ds_sock *s, int fd, bool *ended)
{
	struct ds_shared *h = s->sh;
	struct to_shadow to = {.known = false};
	uint64_t sent, slot = h->return_slot, off = h->return_off;
	DS_BY_NUMBER(kernel);

	ds_by_number_begin(&kernel, &s->life->numbered, true);
	to.fd = fd = ds_still(s, fd);
	if (has_failed(fd)) {
		errno = EPIPE;
		return DS_AGAIN;
	}
	/* Since PROMOTE nothing else was written there. */
	to.known = ds_kernel_sent(fd, s->side, &sent) && sent >= h->tx_carried;
	if (to.known)
		to.written = sent - h->tx_carried;
	return ds_tx_return(&s->seg, &h->tx, &slot, &off, to_shadow, &to, ended);
}

bool ds_promote(struct ds_sock *s, int fd, bool pauses)
{
	struct ds_shared *h = s->sh;
	uint64_t carried;
	bool done = false;

	if (ds_mode(&h->tx_shut) || (!pauses && ds_seg_back(&s->seg)) || !ds_may_promote(s) || !ds_gate_shut(s))
		return false;
	int saved = errno;
	DS_BY_NUMBER(kernel);
	ds_by_number_begin(&kernel, &s->life->numbered, true);
	if (ds_kernel_sent(ds_still(s, fd), s->side, &carried)) {
		h->tx_carried = carried;
		done = (pauses ? ds_tx_promote_to_pause : ds_tx_promote)(&s->seg, &h->tx, &h->attention, carried) == 0;
	}
	if (done)
		ds_on_tx(s, ON_PROMOTE);
	errno = saved;
	ds_gate_open(s);
	return done;
}

/* Does the program at another host not know yet that this direction is on the shadow while the
 * connection is switched off? If a node is killed, it has to. */
static bool untold(struct ds_sock *s, int mode)
{
	return (mode == TX_SHADOW || mode == TX_DIRECT) && ds_seg_peer_relayed(&s->seg) && ds_seg_peer_pauses(&s->seg) && ds_seg_back(&s->seg) == DS_BACK_SWITCH;
}

/* The connection goes back to TCP: for good if the network does not carry the shadow any more; then
 * whether it goes on is TCP's to say. Who has switched it off may switch it on again. */
static void go_back(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	bool switched = ds_seg_back(&s->seg) == DS_BACK_SWITCH, pause = switched && ds_seg_peer_pauses(&s->seg);
	int mode = ds_mode(&h->tx_mode);

	if (mode == TX_SHADOW && untold(s, mode) && ds_promote(s, fd, true))
		mode = TX_DIRECT;
	/* A peer that has not attached has not said yet whether it knows PAUSE. */
	if (mode != TX_DIRECT && (pause || (switched && ds_state_of(s) != CONN_UP))) {
		ds_say_mode(s);
		return;
	}
	if (mode != TX_DIRECT)
		ds_on_tx(s, ON_LEAVE);
	else if (!ds_mode(&h->tx_shut) && ds_tx_end(&s->seg, &h->tx, &h->attention, pause ? DS_PAUSE : DS_DEMOTE) == 0)
		ds_on_tx(s, pause ? ON_PAUSE : ON_DEMOTE);
	else
		return;
	ds_stats_say(s->entry, DS_MODE_DEMOTED, ds_why_back(s));
}

void ds_tx_update(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	bool ended = ds_mode(&h->tx_shut);
	int saved = errno;

	ds_seg_heed(&s->seg, &h->attention);
	if (ds_mode(&h->tx_mode) == TX_PAUSED && ds_tx_resumed(&s->seg, &h->tx, &h->attention))
		ds_on_tx(s, ON_RESUME);
	if (ds_mode(&h->tx_mode) <= TX_DIRECT) {
		/* Before FALLEN_BACK is looked for: who sets both sets that first, and wants
		 * its bytes. */
		bool left = ds_left(s);

		if (ds_seg_peer_attention(&s->seg) & DS_FALLEN_BACK) {
			if (ds_mode(&h->tx_mode) == TX_PAUSED && ds_tx_left_paused(&s->seg, &h->tx)) {
				ds_on_tx(s, ON_LEAVE); /* it reads up to PAUSE, and nothing after it */
			} else if (ds_mode(&h->tx_mode) != TX_DIRECT) {
				ds_attend(&s->seg, &h->attention, DS_RETURNED, 0);
				ds_on_tx(s, ON_FALLEN_BACK);
			} else if (ds_tx_return_begin(&s->seg, &h->tx, &h->attention, &h->return_slot, &h->return_off) < 0) {
				ds_break(s);
			} else {
				ds_on_tx(s, ON_FALLEN_BACK);
			}
		} else if (left && !peer_is_lost(s, fd)) {
			/* the shadow says what follows */
			ds_on_tx(s, ds_mode(&h->tx_mode) == TX_DIRECT ? ON_GONE : ON_LEAVE);
		} else if (ds_seg_back(&s->seg)) {
			go_back(s, fd);
		}
	}
	if (ds_mode(&h->tx_mode) == TX_RETURNING && !ds_is_others(s, fd)) {
		ds_linger_guard(s, fd);
		switch (write_back(s, fd, &ended)) {
		case 0:
			if (ended)
				REAL(shutdown, fd, SHUT_WR);
			ds_linger_free(s, fd);
			ds_on_tx(s, ON_WRITTEN); /* last: until then an heir does it all again */
			break;
		case DS_BREACH:
			ds_break(s);
			break;
		default:
			if (errno != EAGAIN && errno != EINTR) {
				if (errno == EPIPE) /* who was killed has written all, and shut down */
					ds_linger_free(s, fd);
				ds_owe(s, errno);
				ds_on_tx(s, ON_FAILED); /* and the program will be told */
			}
		}
	}
	errno = saved;
}

void ds_tx_attend(struct ds_sock *s, int fd)
{
	int mode = __atomic_load_n(&s->sh->tx_mode, __ATOMIC_RELAXED);
	bool alone = ds_alone(s);

	if (mode >= TX_BACK || !((ds_seg_peer_attention(&s->seg) & DS_FALLEN_BACK) || ds_mode(&s->sh->gone) || untold(s, mode)) || !ds_tx_take(s, alone))
		return;
	ds_tx_update(s, ds_still(s, fd));
	ds_unlock(&s->sh->tx_lock, alone);
}

/* The last holder of the lock may not have noted what it has read of the shadow: the kernel knows.
 * With the lock of rx. */
static void recount(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	int saved = errno, mode = ds_mode(&h->rx_mode), before = mode == RX_FALLEN_BACK ? h->rx_before : mode;
	uint64_t n;

	h->rx_recount = 0;
	if ((before == RX_CATCH_UP && ds_shadow_read_up_to(fd, h->carried, &n)) || ds_shadow_read(fd, h->rx_read, &n))
		DS_SET(h->rx_read, n);
	errno = saved;
	if (before != RX_CATCH_UP)
		return;
	if (h->rx_read > h->carried)
		ds_break(s);
	else if (!ds_rx_ahead(h))
		ds_rx_caught_up(s);
}

void ds_rx_update(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	uint64_t carried;

	ds_seg_heed(&s->seg, &h->attention);
	if (__builtin_expect(h->rx_recount, 0))
		recount(s, fd);
	if (ds_mode(&h->rx_mode) == RX_SHADOW) {
		switch (ds_rx_promoted(&s->seg, &h->rx, &carried)) {
		case 1:
			if (carried < h->rx_read) {
				ds_break(s);
				return;
			}
			h->carried = carried;
			ds_on_rx(s, ON_PROMOTE);
			if (!ds_rx_ahead(h))
				ds_on_rx(s, ON_REACHED);
			break;
		case DS_BREACH:
			ds_break(s);
			return;
		default:
			if (ds_left(s) && !ds_rx_there(&s->seg, &h->rx) && !peer_is_lost(s, fd) && !ds_rx_hint(&s->seg, &h->rx))
				ds_on_rx(s, ON_GONE);
			else
				ds_say_mode(s);
		}
	}
	if (ds_mode(&h->rx_mode) > RX_ENDED && ds_mode(&h->rx_mode) < RX_BACK)
		ds_rx_returning(s, fd);
	if (ds_mode(&h->rx_mode) == RX_DIRECT) {
		int how = ds_rx_look(&s->seg, &h->rx);
		bool gone = false, bare, fell = __atomic_load_n(&h->attention.word, __ATOMIC_RELAXED) & DS_FALLEN_BACK;

		if (how == DS_AGAIN && ds_left(s)) { /* what it sent before it left is there by now */
			how = ds_rx_look(&s->seg, &h->rx);
			gone = how == DS_AGAIN;
			if (gone && peer_is_lost(s, fd))
				return;
		}
		if (gone)
			ds_on_rx(s, ON_GONE);
		bare = how == DS_PAUSED && ds_rx_bare(&h->rx);
		switch (how) {
		case DS_PAUSED:
			if (fell)
				how = DS_DEMOTED; /* this side has fallen back, too late for the peer to see it before PAUSE */
			/* fall through */
		case DS_DEMOTED:
			/* If it has, and its node was lost before, it comes on the shadow, too. */
			if (fell && node_is_lost(s) && !(ds_seg_peer_attention(&s->seg) & DS_STANDS)) {
				ds_break_for(s, DS_WHY_UNREACHABLE);
				return;
			}
			/* fall through */
		case DS_END:
			ds_on_rx(s, how == DS_END ? ON_SHUTDOWN : how == DS_PAUSED ? ON_PAUSE : ON_DEMOTE);
			if (how != DS_END && !bare)
				ds_count(&s->seg, DS_C_RX_DEMOTE, 1);
			ds_rx_finish(&s->seg, &h->rx, &h->attention, how == DS_PAUSED);
			break;
		case DS_BREACH:
			ds_break(s);
		}
	}
}

bool ds_reads_nothing(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	int there = 0;

	if (__builtin_expect(!__atomic_load_n(&h->rx_shut, __ATOMIC_ACQUIRE), 1))
		return false;
	bool alone = ds_alone(s);
	if (!ds_mode(&h->tx_shut) || !ds_has_segment(s) || !ds_rx_take(s, alone))
		return true;
	ds_rx_update(s, fd);
	bool empty = ds_mode(&h->rx_mode) == RX_SHADOW ? REAL(ioctl, fd, DS_INQ, &there) == 0 && !there
		: ds_mode(&h->rx_mode) == RX_DIRECT && ds_rx_look(&s->seg, &h->rx) == DS_AGAIN;
	if (empty)
		ds_rx_fall_back(s);
	ds_unlock(&h->rx_lock, alone);
	return true;
}

bool ds_on_shadow_rx(struct ds_sock *s)
{
	return !s->sh || !ds_has_segment(s) || __atomic_load_n(&s->sh->rx_mode, __ATOMIC_ACQUIRE) == RX_BACK;
}

bool ds_on_shadow_tx(struct ds_sock *s)
{
	return !s->sh || !ds_has_segment(s) || __atomic_load_n(&s->sh->tx_mode, __ATOMIC_ACQUIRE) == TX_BACK;
}

void ds_jumped(struct ds_sock *s)
{
	if (!s->sh)
		return;
	ds_lock_jumped(&s->sh->tx_lock);
	ds_lock_jumped(&s->sh->rx_lock);
	ds_lock_jumped(&s->sh->attention.lock);
}

/* With the lock of tx, where there is no room: has the peer taken none of few bytes for
 * DS_STALL ns? */
static bool stuck(struct ds_sock *s)
{
	struct ds_tx *t = &s->sh->tx;
	uint64_t now = ds_ticks();

	if (DS_GET(s->full) && s->full_at == t->consumed)
		return now - s->full >= ds_ticks_us() * (DS_STALL / 1000);
	s->full_at = t->consumed;
	DS_SET(s->full, ds_tx_queued(&s->seg, t) < DS_FEW ? now : 0);
	return false;
}

bool ds_tx_gives_up(struct ds_sock *s, int fd, bool now)
{
	if (!stuck(s) && !now)
		return false;
	DS_SET(s->full, 0);
	if (ds_tx_end(&s->seg, &s->sh->tx, &s->sh->attention, DS_DEMOTE) == 0) {
		ds_on_tx(s, ON_DEMOTE);
		ds_stats_say(s->entry, DS_MODE_DEMOTED, DS_WHY_NO_MEMORY);
	} else {
		ds_tx_update(s, fd);
	}
	return ds_goes_by_shadow(ds_mode(&s->sh->tx_mode));
}

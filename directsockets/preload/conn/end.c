/* The end of a connection: close, shutdown, and release of the segment. */
#include "conn/broker.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

/* Are there bytes that the program has not read, so that close resets the connection, and there
 * must be no end of file on the segment? With the lock of rx. */
static bool unread(struct ds_sock *s, int fd)
{
	int n = 0;

	ds_rx_update(s, fd);
	/* What the shadow has, its close looks at by itself. */
	return ds_segment_unread(s) || (ds_mode(&s->sh->tx_mode) == TX_DIRECT && REAL(ioctl, fd, DS_INQ, &n) == 0 && n > 0);
}

/* Has the peer ended its direction in the segment? With the lock of rx. */
static bool over(struct ds_sock *s)
{
	struct ds_shared *h = s->sh;

	return ds_mode(&h->rx_mode) == RX_ENDED || (ds_rx_from_segment(s) && ds_rx_look(&s->seg, &h->rx) == DS_END);
}

/* The peer has ended its direction in the segment, and is about to on the shadow (SPEC 5.6). Waits
 * until it has, for 10 ms at most: who ends second in the segment ends second on the shadow, as on
 * TCP. Otherwise the port of this end would be in TIME_WAIT, and a server without SO_REUSEADDR
 * could not listen there again. No lock. */
static void end_second(int fd)
{
	struct pollfd p = {fd, POLLRDHUP, 0};

	ds_syscall(SYS_ppoll, &p, 1, &(struct timespec){0, 10000000}, NULL, 0);
}

/* Has a process that outlives this one write what is left behind, as the kernel would. False: there
 * is none, or it cannot be made: the shadow's close resets the connection. */
static bool stays(struct ds_sock *s, int fd) { return ds_left_behind(s) && fd >= 0 && ds_above && ds_above->stay && ds_above->stay(s, fd); }

/* Does the inbound direction have the kernel's close reset the connection? *second: the peer has
 * ended it. */
static bool resets(struct ds_sock *s, int fd, bool *second)
{
	bool alone = ds_alone(s), yes = false;

	if (ds_rx_take(s, alone)) {
		yes = unread(s, fd) || ds_mode(&s->sh->rx_mode) == RX_BROKEN;
		*second = over(s);
		ds_unlock(&s->sh->rx_lock, alone);
	}
	return yes;
}

/* This process ends its use of s, and is not the last one: or it is, and the others were killed, or
 * have ended without closing s. So the shadow is put on guard, if it has to be, before its last
 * descriptor is closed, whoever has that. One that keeps the lock, because it is stopped, lives: it
 * has s open. What is left behind is written whatever the others do, who may never call again.
 * What is unread, and stays that, has the peer reset: the kernel's last close does, too. */
static void leave_rest(struct ds_sock *s, int fd)
{
	ds_rx_leaves(&s->seg, &s->sh->rx);
	int how = ds_lock_for(&s->sh->tx_lock, DS_SECOND);
	bool last = ds_single(s), second = false;

	if (how == DS_NESTED)
		return;
	if (how == DS_INHERITED)
		ds_tx_inherit(s);
	ds_tx_update(s, fd);
	bool none = !ds_left_behind(s) || ds_is_others(s, fd) || (last && ds_linger_resets(s, fd));
	ds_unlock(&s->sh->tx_lock, false);
	if (!none && !(last && resets(s, fd, &second)))
		stays(s, fd);
}

/* Ends the connection on the segment, as the kernel's close will on the shadow. */
static void say_end(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	uint32_t set = DS_CLOSED;

	bool alone = ds_alone(s), second = false, abort = resets(s, fd, &second);
	if (ds_tx_take(s, alone)) {
		ds_tx_update(s, fd);
		if (ds_mode(&h->tx_mode) == TX_RETURNING && ds_is_others(s, fd))
			fd = -1; /* nothing is done to that one */
		abort |= ds_linger_resets(s, fd);
		if (ds_mode(&h->tx_mode) == TX_DIRECT && !abort) { /* after a reset there is no end of file */
			if (ds_tx_end(&s->seg, &h->tx, &h->attention, DS_SHUTDOWN) == 0)
				ds_on_tx(s, ON_SHUTDOWN);
			else
				ds_tx_update(s, fd);
		}
		/* What the shadow does not take now, the peer has in the segment; see linger.c
		 * for a peer that has no segment any more. */
		ds_unlock(&h->tx_lock, alone);
	}
	if (!abort && stays(s, fd))
		return;
	if (abort) {
		set |= DS_RESET;
		REAL(setsockopt, fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
	} else if (second && fd >= 0) {
		end_second(fd);
	}
	if (ds_state_of(s) == CONN_OFFERED && s->side == 0)
		ds_seg_state(&s->seg, &h->attention, DS_WITHDRAWN);
	ds_attend(&s->seg, &h->attention, set, DS_ARM_RX | DS_ARM_TX);
}

void ds_exit_one(struct ds_sock *s, int fd, bool going)
{
	int saved = errno;

	if (!s->sh || !ds_has_segment(s))
		return;
	if (ds_single(s) && !going)
		say_end(s, fd);
	else /* what other threads still send follows; the kernel alone ends the connection */
		leave_rest(s, fd);
	errno = saved;
}

/* SO_LINGER with a time: TCP's close waits until the peer's kernel has all bytes. Here the peer has
 * them all, in a ring that takes the place of both buffers: close waits while the ring is too full
 * to send more. Or nobody has the segment, and close waits while they are not on the shadow. */
static void linger(struct ds_sock *s, int fd)
{
	int cancel, left = 0, time;

	if (!(time = ds_linger_seconds(s, fd)))
		return;
	if (ds_fionread(s, fd, &left) < 0 || left > 0)
		return; /* the connection will be reset */
	int64_t until = ds_now() + (int64_t)time * 1000000000;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* close closes the descriptor in any case */
	for (;;) {
		struct ds_ready r = ds_ready(s, fd, POLLOUT);

		if ((((r.now | r.kernel) & POLLOUT) && !ds_left_behind(s)) || ds_wait(s, fd, POLLOUT, until, true) < 0)
			break;
	}
	pthread_setcancelstate(cancel, NULL);
}

/* With the lock of setup: releases the handle. last: no other process has s open. */
static void release(struct ds_sock *s, bool last)
{
	if (ds_state_of(s) == CONN_OFFERED && s->side == 0)
		ds_broker_withdraw(s->id, s->info.nonce);
	if (ds_state_of(s) == CONN_EARLY && !last) /* it is another process's from now on */
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_SHARED);
	ds_offer_once(s);
	ds_decided(s);
	ds_habit(s);
	ds_drop(s);
	ds_sharer_end(s);
	if (s->wakefd >= 0)
		ds_fd_close(s->wakefd);
	if (s->leadfd >= 0)
		ds_fd_close(s->leadfd);
	ds_stats_put(s->entry, ds_config.explain);
	if (s->sh && ds_state_of(s) != CONN_LEFT)
		ds_arena_put(s->sh, last);
	ds_handle_put(s);
}

static void release_last(void *s) { release(s, true); }
static void release_shared(void *s) { release(s, false); }

void ds_close(struct ds_sock *s, int fd)
{
	int saved = errno;
	bool last = false;

	/* While it still counts: once it does not, the others may do without locks. */
	if (s->sh && ds_has_segment(s) && !ds_single(s) && fd >= 0)
		leave_rest(s, fd);
	if (s->sh && ds_state_of(s) != CONN_LEFT) {
		ds_sharer_leave(s);
		last = ds_arena_leave(s->sh);
	}
	if (last && ds_has_segment(s)) {
		if (fd >= 0)
			linger(s, fd);
		say_end(s, fd);
	}
	ds_setup_do(last ? release_last : release_shared, s);
	errno = saved;
}

int ds_shutdown(struct ds_sock *s, int fd, int how)
{
	struct ds_shared *h = s->sh;
	bool returns = false, shut = false;
	int r = 0, saved = errno;

	if (!h)
		return REAL(shutdown, fd, how);
	ds_sharer_use(s, fd);
	bool second = how != SHUT_RD && ds_mode(&h->rx_mode) == RX_ENDED, early = second && ds_mode(&h->tx_mode) == TX_RETURNING;
	if (early) /* not with the lock of tx */
		end_second(fd);
	if (how == SHUT_RD || how == SHUT_RDWR)
		__atomic_store_n(&h->rx_shut, 1, __ATOMIC_RELEASE);
	if (how == SHUT_WR || how == SHUT_RDWR) {
		bool alone = ds_alone(s), taken = ds_tx_take(s, alone);

		if (taken && ds_has_segment(s))
			ds_tx_update(s, fd);
		/* Not before: ds_tx_update would shut the shadow down, too, and the second time
		 * is an error. Not later: an heir ends what a killed process has begun. */
		__atomic_store_n(&h->tx_shut, 1, __ATOMIC_RELAXED);
		if (taken && ds_has_segment(s)) {
			if (ds_mode(&h->tx_mode) == TX_DIRECT) {
				switch (ds_tx_end(&s->seg, &h->tx, &h->attention, DS_SHUTDOWN)) {
				case 0:
					ds_on_tx(s, ON_SHUTDOWN);
					break;
				default:
					ds_tx_update(s, fd);
				}
			}
			/* What the shadow has not taken, the peer has in the segment; but if it
			 * has none, the shadow is shut down when all is written. */
			returns = ds_mode(&h->tx_mode) == TX_RETURNING && h->return_orphan;
			if (ds_mode(&h->tx_mode) == TX_RETURNING && !returns) {
				r = REAL(shutdown, fd, how);
				saved = errno;
				shut = true;
				ds_on_tx(s, ON_ENDED); /* last: until then an heir shuts it down */
			}
		}
		if (taken)
			ds_unlock(&h->tx_lock, alone);
	}
	if (how != SHUT_RD && ds_has_segment(s)) /* the shadow tells those who receive of SHUT_RD */
		ds_wake_all(s);
	if (second && !early && !shut)
		end_second(fd);
	if (!shut && !(returns && how == SHUT_WR)) {
		r = REAL(shutdown, fd, returns ? SHUT_RD : how);
		saved = errno;
	}
	ds_reads_nothing(s, fd);
	errno = saved;
	return r;
}

/* With the lock of setup: handle, a struct ds_sock *, stays without a segment, or its offer is
 * withdrawn. */
static void offer_no_more(void *handle)
{
	struct ds_sock *s = handle;

	if (ds_plain(s))
		return;
	if (!ds_has_segment(s)) {
		ds_drop(s);
		ds_on(s, CONN_ON_GIVE_UP);
		ds_decided(s);
		ds_stats_say(s->entry, DS_MODE_TCP, DS_WHY_PROGRAM);
	} else if (ds_state_of(s) == CONN_OFFERED && s->side == 0) {
		ds_broker_withdraw(s->id, s->info.nonce);
		ds_offer_once(s);
	}
}

/* Has shutdown ended the sleep of the thread that leads, which has not noticed yet? */
static bool leaving(struct ds_sock *s)
{
	if (!ds_mode(&s->sh->rx_shut))
		return false;
	ds_own_again(&s->arming);
	bool leads = s->leading && (s->leads_rx || ds_mode(&s->sh->tx_shut));
	ds_own_unlock(&s->arming);
	return leads;
}

/* Who has a lock of s has looked at its descriptor, perhaps before the layer above named another:
 * waits until that call has gone on. Who takes one from now on finds the other descriptor
 * (ds_still). */
static void holders_go_on(struct ds_sock *s)
{
	if (ds_tx_take(s, false))
		ds_unlock(&s->sh->tx_lock, false);
	if (ds_rx_take(s, false))
		ds_unlock(&s->sh->rx_lock, false);
}

void ds_renumbered(struct ds_sock *s)
{
	enum { YIELDS = 100, NAPS = 10000 }; /* at least a second, and more on a busy machine */
	uint64_t us = 20000, one = 1;
	int saved = errno;

	if (!s->sh || ds_plain(s))
		return;
	/* A handler must not wait for the call that it interrupted, nor a process for others. */
	if (ds_self.level || !ds_single(s))
		us = 0;
	if (ds_has_segment(s)) {
		ds_syscall(SYS_write, ds_wakefd(s), &one, sizeof one);
		/* What sleeps on the bell has been woken by shutdown, and is still to look at its
		 * descriptor. */
		for (int i = 0; us && i < YIELDS + NAPS && leaving(s); i++)
			ds_syscall(i < YIELDS ? SYS_sched_yield : SYS_nanosleep, &(struct timespec){0, 100000}, NULL);
		if (us && !ds_alone(s))
			holders_go_on(s);
	} else if (ds_gate_clear(s, (unsigned)us)) {
		ds_gate_open(s);
	} else { /* the wakefd stays readable for all of them */
		ds_setup_do(offer_no_more, s);
		ds_syscall(SYS_write, s->wakefd, &one, sizeof one);
	}
	errno = saved;
}

void ds_disconnected(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	int saved = errno;

	if (!h || ds_plain(s))
		return;
	ds_sharer_use(s, fd); /* another process may have made it direct */
	ds_setup_do(offer_no_more, s);
	if (ds_has_segment(s)) {
		bool alone = ds_alone(s), tx = ds_tx_take(s, alone), rx = ds_rx_take(s, alone);

		/* The peer reads what was sent before it reads the shadow, which says that the
		 * connection is reset. It says so, too, as the peer writes there what is unread. */
		if (tx && ds_mode(&h->tx_mode) == TX_DIRECT)
			ds_tx_end(&s->seg, &h->tx, &h->attention, DS_DEMOTE);
		if (rx)
			ds_rx_fall_back(s);
		ds_linger_free(s, fd);
		ds_back(s);
		/* As the kernel has it. */
		DS_SET(h->owed, 0);
		DS_SET(h->rx_shut, 0);
		DS_SET(h->tx_shut, 0);
		if (rx)
			ds_unlock(&h->rx_lock, alone);
		if (tx)
			ds_unlock(&h->tx_lock, alone);
		ds_wake_all(s);
	}
	errno = saved;
}

/* The outbound direction goes to the shadow, for good. Takes the lock of tx. */
static void leave_tx(struct ds_sock *s, int fd)
{
	struct ds_shared *h = s->sh;
	bool alone = ds_alone(s);

	if (!ds_tx_take(s, alone))
		return;
	ds_tx_update(s, fd);
	if (ds_mode(&h->tx_mode) <= TX_PAUSED)
		ds_on_tx(s, ON_LEAVE);
	if (ds_mode(&h->tx_mode) == TX_DIRECT) {
		if (ds_tx_end(&s->seg, &h->tx, &h->attention, DS_DEMOTE) == 0)
			ds_on_tx(s, ON_DEMOTE);
		else
			ds_tx_update(s, fd);
	}
	ds_unlock(&h->tx_lock, alone);
}

/* The inbound direction goes to the shadow, for good. Takes the lock of rx. */
static void leave_rx(struct ds_sock *s, int fd)
{
	bool alone = ds_alone(s);

	if (!ds_rx_take(s, alone))
		return;
	ds_rx_update(s, fd);
	ds_rx_fall_back(s);
	ds_unlock(&s->sh->rx_lock, alone);
}

/* The program needs the shadow to send, and with both to receive, too. */
static void return_to_tcp(struct ds_sock *s, int fd, bool both)
{
	int saved = errno;

	if (!s->sh || ds_plain(s))
		return;
	ds_sharer_use(s, fd);
	ds_setup_do(offer_no_more, s);
	if (ds_has_segment(s)) {
		leave_tx(s, fd);
		if (both)
			leave_rx(s, fd);
		ds_stats_say(s->entry, DS_MODE_DEMOTED, DS_WHY_PROGRAM);
	}
	errno = saved;
}

void ds_fall_back(struct ds_sock *s, int fd) { return_to_tcp(s, fd, true); }
void ds_send_back(struct ds_sock *s, int fd) { return_to_tcp(s, fd, false); }

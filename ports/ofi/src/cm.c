// cm.c: connections are made over TCP between the nodes' addresses. The two ends tell each other
// their node, VPIDs and endpoint, and the user's data. The TCP connection stays: its end is the
// peer's.
//
//	client                         server
//	DIALING     ── connect ──▶     ARRIVING
//	ASKED       ── CM_REQUEST ──▶  OFFERED: event FI_CONNREQ, then fi_accept or fi_reject
//	            ◀── CM_ACCEPT ──   ACCEPTING   (or CM_REJECT, and the end)
//	CONNECTED   ── CM_READY ──▶    CONNECTED
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "exnet.h"

enum {
	AWAIT_MS = 10,
	AWAIT_RESET = 1000 / AWAIT_MS, // so often, where what the peer said last may be lost with its TCP
};

static void watch(struct cm *cm, int op, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = cm};
	(void)epoll_ctl(cm->eq->poll_fd, op, cm->fd, &e);
}

struct cm *cm_new(struct fabric *f, struct eq *eq, int fd, uint32_t events)
{
	struct cm *cm = calloc(1, sizeof(*cm));

	if (cm == NULL)
		return NULL;
	cm->fid.fclass = FI_CLASS_CONNREQ;
	cm->fabric = f;
	cm->eq = eq;
	cm->fd = fd;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
	list_push(&f->cms, &cm->link);
	watch(cm, EPOLL_CTL_ADD, events);
	return cm;
}

void cm_free(struct cm *cm)
{
	if (cm->pep != NULL)
		cm->pep->waiting--;
	if (cm->ep != NULL)
		cm->ep->cm = NULL;
	list_remove(&cm->link);
	// What is not read would make a reset of the end, which may overtake what was said last.
	for (int i = 0; i < 4 && recv(cm->fd, cm->in, sizeof(cm->in), MSG_DONTWAIT) > 0; i++)
		;
	// A child may have the descriptor, too: then its end alone does not take it out of the set.
	if (cm->eq != NULL)
		watch(cm, EPOLL_CTL_DEL, 0);
	close(cm->fd);
	free(cm);
}

int cm_send(struct cm *cm, enum cm_type type, const struct ep *ep, const void *data, size_t len)
{
	uint8_t out[sizeof(struct cm_head) + CM_DATA];
	struct cm_head h = {.magic = CM_MAGIC, .version = CM_VERSION, .type = (uint8_t)type, .length = (uint16_t)len};
	if (ep != NULL) {
		h.node = (uint16_t)velo2_get_nodeid(&ep->domain->velo);
		h.velo = (uint16_t)velo2_get_vpid(&ep->domain->velo);
		h.rma = rma2_get_vpid(ep->domain->rma);
		h.id = ep->id;
		h.flags = CM_PLACES | CM_LARGE | CM_CLOSES | (ep->source.reads ? CM_READS : 0);
		h.pid = (uint32_t)getpid();
		h.word_at = (uintptr_t)&ep->word;
		h.word = type == CM_CLOSE ? ep->posted : ep->word;
	}
	memcpy(out, &h, sizeof(h));
	if (len > 0)
		memcpy(out + sizeof(h), data, len);
	// The socket's buffer is empty: it takes all of it.
	return send(cm->fd, out, sizeof(h) + len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)(sizeof(h) + len) ? 0 : -FI_ECONNABORTED;
}

// state_of returns the state of the connection, which its endpoint has, or the request.
static enum state state_of(const struct cm *cm)
{
	return cm->ep != NULL ? cm->ep->state : cm->state;
}

// failed ends an attempt to connect.
static void failed(struct cm *cm, int error, const void *data, size_t len)
{
	struct ep *ep = cm->ep;
	if (ep != NULL)
		(void)ep_on_data(ep, ON_FAILED, error, data, len);
	if (ep == NULL || ep->cm == cm)
		cm_free(cm);
}

// fetch reads what is missing of a message. It returns 1 when it is complete, 0 if not yet, -1 if
// the peer has ended, or sends nonsense.
static int fetch(struct cm *cm)
{
	for (;;) {
		size_t want = sizeof(cm->head);
		if (cm->have >= sizeof(cm->head)) {
			memcpy(&cm->head, cm->in, sizeof(cm->head));
			if (cm->head.magic != CM_MAGIC || cm->head.version != CM_VERSION || cm->head.length > CM_DATA)
				return -1;
			want += cm->head.length;
			if (cm->have == want) {
				cm->have = 0;
				return 1;
			}
		}
		ssize_t n = recv(cm->fd, cm->in + cm->have, want - cm->have, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		cm->awaits = n < 0 ? AWAIT_RESET : 0;
		if (n <= 0)
			return -1;
		cm->have += (size_t)n;
	}
}

static void dialed(struct cm *cm)
{
	int error = 0;
	socklen_t len = sizeof(error);
	if (getsockopt(cm->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
		failed(cm, error != 0 ? error : FI_ECONNREFUSED, NULL, 0);
		return;
	}
	len = sizeof(cm->ep->local);
	(void)getsockname(cm->fd, &cm->ep->local.sa, &len);
	if (cm_send(cm, CM_REQUEST, cm->ep, cm->out, cm->out_len) != 0) {
		failed(cm, FI_ECONNREFUSED, NULL, 0);
		return;
	}
	(void)ep_on(cm->ep, ON_REACHED, 0);
	watch(cm, EPOLL_CTL_MOD, EPOLLIN);
}

static void answered(struct cm *cm)
{
	struct ep *ep = cm->ep;
	const uint8_t *data = cm->in + sizeof(cm->head);
	if (cm->head.type == CM_REJECT) {
		failed(cm, FI_ECONNREFUSED, data, cm->head.length);
		return;
	}
	int r = cm->head.type == CM_ACCEPT ? ep_connect_ports(ep, &cm->head) : -FI_EIO;
	if (r == 0)
		r = cm_send(cm, CM_READY, ep, NULL, 0);
	if (r != 0) {
		failed(cm, -r, NULL, 0);
		return;
	}
	ep->direct = cm->head.flags & CM_READS;
	(void)ep_on_data(ep, ON_ACCEPTED, 0, data, cm->head.length);
}

// asked offers a request to the user.
static void asked(struct cm *cm)
{
	struct pep *pep = cm->pep;
	struct fi_info *info = cm->head.type == CM_REQUEST ? fi_dupinfo(pep->info) : NULL;
	union address local, peer;
	socklen_t llen = sizeof(local), plen = sizeof(peer);
	if (info == NULL || getsockname(cm->fd, &local.sa, &llen) != 0 || getpeername(cm->fd, &peer.sa, &plen) != 0) {
		fi_freeinfo(info);
		cm_free(cm);
		return;
	}
	free(info->src_addr);
	free(info->dest_addr);
	info->src_addr = malloc(llen);
	info->dest_addr = malloc(plen);
	if (info->src_addr == NULL || info->dest_addr == NULL) {
		fi_freeinfo(info);
		cm_free(cm);
		return;
	}
	memcpy(info->src_addr, &local, info->src_addrlen = llen);
	memcpy(info->dest_addr, &peer, info->dest_addrlen = plen);
	info->handle = &cm->fid;
	(void)state_step(&cm->state, ON_REQUEST);
	watch(cm, EPOLL_CTL_DEL, 0);
	eq_cm_event(pep->eq, FI_CONNREQ, &pep->fid.fid, info, cm->in + sizeof(cm->head), cm->head.length);
}

// await has whoever waits for the event queue look at the mailbox from time to time, in place of
// TCP.
static void await(struct cm *cm)
{
	const struct itimerspec every = {{0, AWAIT_MS * 1000000}, {0, AWAIT_MS * 1000000}};
	watch(cm, EPOLL_CTL_DEL, 0);
	close(cm->fd); // first: it may be the only descriptor that can be had
	cm->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (cm->fd < 0 || timerfd_settime(cm->fd, 0, &every, NULL) != 0) {
		cm_free(cm); // whoever reads the completion queue looks there, too
		return;
	}
	watch(cm, EPOLL_CTL_ADD, EPOLLIN);
}

// parted is called when the peer's TCP has ended, or says that the peer has closed. What the peer
// had sent may still be on its way from another host.
static void parted(struct cm *cm)
{
	struct ep *ep = cm->ep;
	const bool closed = ep->last != UINT64_MAX;
	for (int i = 0; i < 64 && ep->cm == cm; i++)
		progress(ep->domain);
	if (ep->cm != cm) // it is down
		return;
	(void)ep_on(ep, !closed && !(ep->far && ep->closes) ? ON_DIED : ON_PARTED, closed ? FI_ECANCELED : FI_ECONNABORTED);
	if (ep->state == ENDING && ep->heard == ep->last)
		(void)ep_on(ep, ON_CLOSED, FI_ECONNABORTED);
	if (ep->cm != cm)
		return;
	if (ep->state == ENDING)
		await(cm);
	else
		cm_free(cm);
}

// ended is called when the peer's TCP has ended.
static void ended(struct cm *cm)
{
	switch (state_of(cm)) {
	case EARLY:
	case CONNECTED:
	case DRAINING:
		parted(cm);
		return;
	case ACCEPTING:
		failed(cm, FI_ECONNABORTED, NULL, 0);
		return;
	case ASKED:
		failed(cm, FI_ECONNREFUSED, NULL, 0);
		return;
	default:
		cm_free(cm);
	}
}

// ticks is called when the timer does that has taken the place of TCP.
static void ticks(struct cm *cm)
{
	struct ep *ep = cm->ep;
	uint64_t n;
	(void)!read(cm->fd, &n, sizeof(n));
	progress(ep->domain);
	if (ep->cm == cm && cm->awaits > 0 && --cm->awaits == 0)
		(void)ep_on(ep, ON_DIED, FI_ECONNABORTED);
}

static void readable(struct cm *cm)
{
	if (state_of(cm) == ENDING) {
		ticks(cm);
		return;
	}
	int r = fetch(cm);
	if (r < 0)
		ended(cm);
	if (r <= 0)
		return;
	switch (state_of(cm)) {
	case ASKED:
		answered(cm);
		return;
	case ARRIVING:
		asked(cm);
		return;
	case ACCEPTING:
	case EARLY:
		if (cm->head.type != CM_READY) {
			failed(cm, FI_EIO, NULL, 0);
			return;
		}
		cm->ep->direct = cm->head.flags & CM_READS;
		(void)ep_on(cm->ep, ON_READY, 0);
		activate(cm->ep);
		return;
	case CONNECTED:
		if (cm->head.type == CM_CLOSE)
			cm->ep->last = cm->head.word;
		parted(cm);
		return;
	default:
		ended(cm);
	}
}

void cm_work(struct eq *eq)
{
	struct epoll_event e;
	bool own = false;
	// One at a time: what one does may end another.
	for (int i = 0; i < 64 && epoll_wait(eq->poll_fd, &e, 1, 0) == 1; i++) {
		struct fid *fid = e.data.ptr;
		if (fid == NULL) { // the queue's own: events wait
			if (own)
				return;
			own = true;
			continue;
		}
		if (fid->fclass == FI_CLASS_PEP)
			cm_accept(of(fid, struct pep, fid.fid));
		else if (state_of(of(fid, struct cm, fid)) == DIALING)
			dialed(of(fid, struct cm, fid));
		else
			readable(of(fid, struct cm, fid));
	}
}

int cm_getname(const union address *a, void *addr, size_t *len)
{
	size_t is = exfi_addr_len(a), room = *len;
	*len = is;
	memcpy(addr, a, room < is ? room : is);
	return room < is ? -FI_ETOOSMALL : 0;
}

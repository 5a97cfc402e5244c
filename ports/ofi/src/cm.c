// cm.c: connections are made over TCP between the nodes' addresses. The two ends tell each other
// their node, VPIDs and endpoint, and the user's data. The TCP connection stays: its end is the
// peer's.
//
//	client                          server
//	CM_DIALS    ── connect ──▶      CM_ARRIVES
//	CM_ASKED    ── CM_REQUEST ──▶   CM_OFFERED: event FI_CONNREQ, then fi_accept or fi_reject
//	            ◀── CM_ACCEPT ──    CM_ACCEPTED   (or CM_REJECT, and the end)
//	CM_UP       ── CM_READY ──▶     CM_UP
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "exnet.h"

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
		h.flags = CM_PLACES | CM_LARGE | (ep->source.reads ? CM_READS : 0);
		h.pid = (uint32_t)getpid();
		h.word_at = (uintptr_t)&ep->word;
		h.word = ep->word;
	}
	memcpy(out, &h, sizeof(h));
	if (len > 0)
		memcpy(out + sizeof(h), data, len);
	// The socket's buffer is empty: it takes all of it.
	return send(cm->fd, out, sizeof(h) + len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)(sizeof(h) + len) ? 0 : -FI_ECONNABORTED;
}

// failed ends an attempt to connect.
static void failed(struct cm *cm, int error, const void *data, size_t len)
{
	struct ep *ep = cm->ep;
	if (ep != NULL) {
		eq_error(ep->eq, &ep->fid.fid, error, data, len);
		ep_down(ep, error, false);
	}
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
	cm->state = CM_ASKED;
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
	cm->state = CM_UP;
	ep->direct = cm->head.flags & CM_READS;
	ep->state = CONNECTED;
	eq_cm_event(ep->eq, FI_CONNECTED, &ep->fid.fid, NULL, data, cm->head.length);
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
	cm->state = CM_OFFERED;
	watch(cm, EPOLL_CTL_DEL, 0);
	eq_cm_event(pep->eq, FI_CONNREQ, &pep->fid.fid, info, cm->in + sizeof(cm->head), cm->head.length);
}

// ended is called when the peer's TCP has ended.
static void ended(struct cm *cm)
{
	struct ep *ep = cm->ep;
	switch (cm->state) {
	case CM_UP:
		// It may have sent before it ended.
		for (int i = 0; i < 64 && ep->cm == cm; i++)
			progress(ep->domain);
		if (ep->cm == cm) {
			cm_free(cm);
			ep_peer_ended(ep, true);
		}
		return;
	case CM_ACCEPTED:
		failed(cm, FI_ECONNABORTED, NULL, 0);
		return;
	case CM_ASKED:
		failed(cm, FI_ECONNREFUSED, NULL, 0);
		return;
	default:
		cm_free(cm);
	}
}

static void readable(struct cm *cm)
{
	int r = cm->state == CM_UP ? -1 : fetch(cm);
	if (r < 0)
		ended(cm);
	if (r <= 0)
		return;
	switch (cm->state) {
	case CM_ASKED:
		answered(cm);
		return;
	case CM_ARRIVES:
		asked(cm);
		return;
	case CM_ACCEPTED:
		if (cm->head.type != CM_READY) {
			failed(cm, FI_EIO, NULL, 0);
			return;
		}
		cm->state = CM_UP;
		cm->ep->direct = cm->head.flags & CM_READS;
		if (cm->ep->state == ACCEPTING) {
			cm->ep->state = CONNECTED;
			eq_cm_event(cm->ep->eq, FI_CONNECTED, &cm->ep->fid.fid, NULL, NULL, 0);
			activate(cm->ep);
		}
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
		else if (of(fid, struct cm, fid)->state == CM_DIALS)
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

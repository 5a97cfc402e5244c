// ep.c: endpoints.
#define _GNU_SOURCE
#include <stdlib.h>
#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include "exnet.h"

static void abort_list(struct ep *ep, struct list *l, int error)
{
	struct tx *tx;
	while ((tx = (struct tx *)list_pop(l)) != NULL)
		tx_complete(ep, tx, error);
}

// abort_out ends everything that was to be sent, or waits for an answer.
static void abort_out(struct ep *ep, int error)
{
	struct tx *tx = ep->current;
	ep->current = NULL;
	abort_list(ep, &ep->waiting, error);
	abort_list(ep, &ep->sends, error);
	abort_list(ep, &ep->shown, error);
	if (tx != NULL)
		tx_complete(ep, tx, error);
	abort_list(ep, &ep->queue, error);
	abort_list(ep, &ep->replies, error);
	ep->owed_count = 0;
	ep->owe_credit = false;
}

// release ends all that was posted with the error, and frees what a connection has.
static void release(struct ep *ep, int error)
{
	struct domain *d = ep->domain;
	struct rx *rx;
	__atomic_store_n(&ep->word, 0, __ATOMIC_SEQ_CST); // what is aborted is the program's again
	place_down(ep);
	abort_out(ep, error);
	in_abort(ep, error);
	// Who closed its endpoint, or never was connected, owes nothing.
	if (ep->peer_end != 0)
		error = ep->peer_end;
	else if (error != FI_EIO && error != FI_ENETDOWN && error != FI_ENOMEM)
		error = FI_ECANCELED;
	in_end(ep, error);
	while ((rx = rx_take(&ep->rxq)) != NULL)
		rx_fail(ep, rx, error);
	if (ep->velo.state_map != NULL)
		velo2_disconnect(&d->velo, &ep->velo);
	if (ep->rma != NULL)
		rma2_disconnect(d->rma, ep->rma);
	ep->rma = NULL;
	if (ep->ring.mem != NULL && ep->ring.head != ep->ring.tail && ep->peer_end == 0)
		ring_keep(d, &ep->ring); // the peer may yet read what was sent
	get_end(ep);
	ring_close(d, &ep->ring);
	list_remove(&ep->active);
	if (ep->cm != NULL)
		cm_free(ep->cm);
}

// farewell tells the peer that this end closes, and how much it has sent. One that does not know
// that it is connected would not take the message.
static void farewell(struct ep *ep, enum act act)
{
	if (act != ACT_PART)
		(void)out_post(ep, OP_CLOSE, 0, NULL, 0, NULL, 0, false); // without room, TCP tells
	if (ep->cm != NULL)
		(void)cm_send(ep->cm, CM_CLOSE, ep, NULL, 0); // where it is full, the end of TCP tells
}

// drain ends what was to be sent. What the peer had sent is told first, as far as there are
// receives. why is that of the receives that are left: who closes owes nothing.
static void drain(struct ep *ep, int why)
{
	if (ep->peer_end != FI_ECANCELED)
		ep->peer_end = why;
	in_drain(ep);
	if (!receives(ep->state))
		return;
	__atomic_store_n(&ep->word, 0, __ATOMIC_SEQ_CST); // what is aborted is the program's again
	abort_out(ep, FI_ECONNABORTED);
	activate(ep);
}

bool ep_on_data(struct ep *ep, enum input what, int error, const void *data, size_t len)
{
	enum act act = state_step(&ep->state, what);
	switch (act) {
	case ACT_TELL:
		eq_cm_event(ep->eq, FI_CONNECTED, &ep->fid.fid, NULL, data, len);
		break;
	case ACT_DRAIN:
		drain(ep, what == ON_CLOSED ? FI_ECANCELED : error);
		break;
	case ACT_FAIL:
		eq_error(ep->eq, &ep->fid.fid, error, data, len);
		release(ep, error);
		break;
	case ACT_PART:
	case ACT_LEAVE:
	case ACT_LEAVE_TELL:
		farewell(ep, act);
		release(ep, error);
		break;
	case ACT_FREE:
	case ACT_END:
		release(ep, error);
		break;
	case ACT_NONE:
	case ACTS:
		break;
	}
	if ((act == ACT_END || act == ACT_LEAVE_TELL) && ep->eq != NULL)
		eq_cm_event(ep->eq, FI_SHUTDOWN, &ep->fid.fid, NULL, NULL, 0);
	return act != ACTS;
}

bool ep_on(struct ep *ep, enum input what, int error)
{
	return ep_on_data(ep, what, error, NULL, 0);
}

// connect_mailbox connects to the peer's mailbox. What is known of the end of another peer, which
// had that mailbox before, is worked off, so that it does not end this connection.
static velo2_ret_t connect_mailbox(struct ep *ep, const struct cm_head *peer)
{
	struct domain *d = ep->domain;
	velo2_ret_t r = velo2_connect(&d->velo, &ep->velo, peer->node, peer->velo);
	if (r != VELO2_RET_SUCCESS)
		return r;
	take_ends(d);
	// That may have been this peer's end, too. Then it has no mailbox any more.
	velo2_disconnect(&d->velo, &ep->velo);
	return velo2_connect(&d->velo, &ep->velo, peer->node, peer->velo);
}

int ep_connect_ports(struct ep *ep, const struct cm_head *peer)
{
	struct domain *d = ep->domain;
	velo2_ret_t r = connect_mailbox(ep, peer);
	if (r != VELO2_RET_SUCCESS) {
		WARN(EP_CTRL, "mailbox %u of node %u: %s\n", peer->velo, peer->node, velo2_strerror(r));
		return r == VELO2_RET_ERR_MMAP ? -FI_ENOMEM : -FI_ECONNREFUSED;
	}
	RMA2_ERROR e = rma2_connect(d->rma, peer->node, peer->rma, RMA2_CONN_DEFAULT, &ep->rma);
	if (e != RMA2_SUCCESS) {
		char why[128];
		rma2_serror(e, why, sizeof(why));
		WARN(EP_CTRL, "RMA port %u of node %u: %s\n", peer->rma, peer->node, why);
		ep->rma = NULL;
		return e == RMA2_ERR_MMAP || e == RMA2_ERR_MAP ? -FI_ENOMEM : -FI_ECONNREFUSED;
	}
	(void)get_news(d); // of a peer that had this RMA port before
	ep->far = rma2_get_now(d->rma, ep->rma, NULL, 0, 0) == RMA2_ERR_NOT_YET;
	if (!ep->far)
		(void)direct_open(&ep->source, peer);
	ep->places = peer->flags & CM_PLACES;
	ep->closes = peer->flags & CM_CLOSES;
	ep->far_chunk = peer->flags & CM_LARGE ? FAR_CHUNK : FAR_CHUNK_OLD;
	ep->node = peer->node;
	ep->velo_vpid = peer->velo;
	ep->rma_vpid = peer->rma;
	ep->peer_id = peer->id;
	return 0;
}

static int ep_close(struct fid *fid)
{
	struct ep *ep = of(fid, struct ep, fid.fid);
	struct domain *d = ep->domain;
	struct list *l;
	lock(d->fabric);
	(void)ep_on(ep, ON_CLOSE, FI_ECANCELED);
	if (ep->eq != NULL) {
		eq_forget(ep->eq, fid);
		ep->eq->uses--;
	}
	if (ep->tx_cq != NULL)
		ep->tx_cq->uses--;
	if (ep->rx_cq != NULL)
		ep->rx_cq->uses--;
	for (int i = 0; i < 4; i++)
		if (ep->cntr[i] != NULL)
			ep->cntr[i]->uses--;
	if (ep->srx != NULL)
		ep->srx->uses--;
	d->eps[ep->id % d->eps_room] = NULL;
	d->uses--;
	if (ep->bound_fd >= 0)
		close(ep->bound_fd);
	if (ep->gate != NULL)
		place_drop(ep);
	unlock(d->fabric);
	while ((l = list_pop(&ep->free)) != NULL)
		free(l);
	rx_clear(&ep->rxq);
	fi_freeinfo(ep->info);
	free(ep->held);
	free(ep);
	return 0;
}

static int bind_cq(struct ep *ep, struct cq *cq, uint64_t flags)
{
	if (cq->domain != ep->domain || !(flags & (FI_TRANSMIT | FI_RECV)))
		return -FI_EINVAL;
	if (((flags & FI_TRANSMIT) && ep->tx_cq != NULL) || ((flags & FI_RECV) && ep->rx_cq != NULL))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->uses++;
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->uses++;
	}
	return 0;
}

static int bind_cntr(struct ep *ep, struct cntr *c, uint64_t flags)
{
	static const uint64_t kinds[4] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
	if (c->domain != ep->domain || (flags & ~(FI_SEND | FI_RECV | FI_READ | FI_WRITE)))
		return -FI_ENOSYS;
	for (int i = 0; i < 4; i++)
		if ((flags & kinds[i]) && ep->cntr[i] == NULL) {
			ep->cntr[i] = c;
			c->uses++;
		}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct ep *ep = of(fid, struct ep, fid.fid);
	struct fabric *f = ep->domain->fabric;
	int r = 0;
	lock(f);
	switch (other->fclass) {
	case FI_CLASS_EQ:
		if (ep->eq != NULL || of(other, struct eq, fid.fid)->fabric != f)
			r = -FI_EINVAL;
		else
			(ep->eq = of(other, struct eq, fid.fid))->uses++;
		break;
	case FI_CLASS_CQ:
		r = bind_cq(ep, of(other, struct cq, fid.fid), flags);
		break;
	case FI_CLASS_CNTR:
		r = bind_cntr(ep, of(other, struct cntr, fid.fid), flags);
		break;
	case FI_CLASS_SRX_CTX:
		if (ep->srx != NULL)
			r = -FI_EINVAL;
		else
			(ep->srx = of(other, struct srx, fid.fid))->uses++;
		break;
	default:
		r = -FI_EINVAL;
	}
	unlock(f);
	return r;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct ep *ep = of(fid, struct ep, fid.fid);
	(void)arg;
	if (command != FI_ENABLE)
		return -FI_ENOSYS;
	if (ep->eq == NULL)
		return -FI_ENOEQ;
	if (ep->tx_cq == NULL && ep->cntr[0] == NULL && ep->rx_cq == NULL)
		return -FI_ENOCQ;
	return 0;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops ep_fid = {.size = sizeof(ep_fid), .close = ep_close, .bind = ep_bind, .control = ep_control, .ops_open = no_ops_open};

static ssize_t ep_cancel(fid_t fid, void *context)
{
	struct ep *ep = of(fid, struct ep, fid.fid);
	struct rx_queue *q = &ep->rxq;
	lock(ep->domain->fabric);
	for (struct rx **at = &q->first; *at != NULL; at = &(*at)->next) {
		struct rx *rx = *at;
		if (rx->context != context)
			continue;
		*at = rx->next;
		if (q->last == &rx->next)
			q->last = at;
		q->count--;
		rx_fail(ep, rx, FI_ECANCELED);
		unlock(ep->domain->fabric);
		return 0;
	}
	unlock(ep->domain->fabric);
	return -FI_ENOENT;
}

static int ep_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
	(void)fid;
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE)
		return -FI_ENOPROTOOPT;
	if (*len < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = CM_DATA;
	*len = sizeof(size_t);
	return 0;
}

static int ep_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
	(void)fid, (void)level, (void)name, (void)value, (void)len;
	return -FI_ENOPROTOOPT;
}

static ssize_t rx_left(struct fid_ep *fid)
{
	struct ep *ep = of(fid, struct ep, fid);
	return (ssize_t)(ep->rxq.limit - ep->rxq.count);
}

static ssize_t tx_left(struct fid_ep *fid)
{
	struct ep *ep = of(fid, struct ep, fid);
	return (ssize_t)(ep->limit - ep->queued);
}

static int no_ctx(struct fid_ep *fid, int index, struct fi_tx_attr *attr, struct fid_ep **out, void *context)
{
	(void)fid, (void)index, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS;
}

static int no_rx_ctx(struct fid_ep *fid, int index, struct fi_rx_attr *attr, struct fid_ep **out, void *context)
{
	(void)fid, (void)index, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS;
}

struct fi_ops_ep exfi_ep_ops = {
	.size = sizeof(exfi_ep_ops), .cancel = ep_cancel, .getopt = ep_getopt, .setopt = ep_setopt, .tx_ctx = no_ctx, .rx_ctx = no_rx_ctx,
	.rx_size_left = rx_left, .tx_size_left = tx_left,
};

// enter finds a number for an endpoint: its place in the table, and above it one that the next
// endpoint in this place does not have.
static bool enter(struct domain *d, struct ep *ep)
{
	for (uint32_t i = 0; i < d->eps_room; i++) {
		uint32_t id = d->next_id++;
		if (d->eps[id % d->eps_room] == NULL) {
			ep->id = id;
			d->eps[id % d->eps_room] = ep;
			return true;
		}
	}
	return false;
}

int exfi_endpoint(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct domain *d = of(fid, struct domain, fid);
	if (info == NULL || info->ep_attr == NULL || info->tx_attr == NULL || info->rx_attr == NULL || info->ep_attr->type != FI_EP_MSG)
		return -FI_EINVAL;
	struct cm *cm = NULL;
	if (info->handle != NULL && info->handle->fclass == FI_CLASS_CONNREQ)
		cm = of(info->handle, struct cm, fid);
	struct ep *ep = calloc(1, sizeof(*ep));
	if (ep == NULL || (ep->info = fi_dupinfo(info)) == NULL || (ep->held = malloc(WINDOW * sizeof(*ep->held))) == NULL) {
		if (ep != NULL)
			fi_freeinfo(ep->info);
		free(ep);
		return -FI_ENOMEM;
	}
	ep->info->handle = NULL;
	ep->domain = d;
	ep->fid.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &ep_fid};
	ep->fid.ops = &exfi_ep_ops;
	ep->fid.cm = &exfi_ep_cm;
	ep->fid.msg = &exfi_msg_ops;
	ep->fid.rma = &exfi_rma_ops;
	ep->tx_flags = info->tx_attr->op_flags;
	ep->rx_flags = info->rx_attr->op_flags;
	ep->limit = info->tx_attr->size > 0 ? info->tx_attr->size : TX_SIZE;
	rx_init(&ep->rxq, info->rx_attr->size > 0 ? info->rx_attr->size : RX_SIZE);
	struct list *lists[] = {&ep->queue, &ep->replies, &ep->waiting, &ep->sends, &ep->shown, &ep->free, &ep->active, &ep->ring.link, &ep->getting};
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		list_init(lists[i]);
	(void)exfi_addr_from(&ep->local, info->src_addr, info->src_addrlen);
	ep->bound_fd = -1;
	ep->last = UINT64_MAX;
	if (getrandom(&ep->word, sizeof(ep->word), GRND_NONBLOCK) != sizeof(ep->word))
		ep->word = 0; // nobody reads this process
	(void)exfi_addr_from(&ep->peer, info->dest_addr, info->dest_addrlen);
	lock(d->fabric);
	int r = d->dead ? -FI_ENETDOWN : cm != NULL && cm->state != OFFERED ? -FI_EINVAL : enter(d, ep) ? 0 : -FI_ENOSPC;
	if (r == 0 && cm != NULL) {
		(void)state_step(&cm->state, ON_TAKE);
		(void)ep_on(ep, ON_TAKE, 0);
		cm->ep = ep;
		ep->cm = cm;
	}
	if (r == 0 && info->handle != NULL && info->handle->fclass == FI_CLASS_PEP) {
		// It connects from the address of a passive endpoint.
		struct pep *p = of(info->handle, struct pep, fid.fid);
		if (p->accepts == ACCEPTS_NOT && p->fd >= 0) {
			ep->bound_fd = p->fd;
			ep->local = p->local;
			p->fd = -1;
		}
	}
	if (r == 0)
		d->uses++;
	unlock(d->fabric);
	if (r != 0) {
		if (r == -FI_ENOSPC)
			WARN(EP_CTRL, "%u endpoints are open in this domain: close some\n", d->eps_room);
		fi_freeinfo(ep->info);
		free(ep->held);
		free(ep);
		return r;
	}
	*out = &ep->fid;
	return 0;
}

// progress.c: the data path's turn: messages that have arrived are worked off, and what waits is
// sent on. It runs in the calls of the program that read completions.
#include "exnet.h"

enum {
	TURN = 128,      // messages in one turn
	TURNS = 64,      // turns, before a new connection, in which what has arrived may end
	RMA_EVERY = 256, // turns between looks at the RMA port, while it only hears of peers that ended
};

void activate(struct ep *ep)
{
	if (list_empty(&ep->active) && ep->state != DOWN)
		list_push(&ep->domain->active, &ep->active);
	cq_wake_all(ep->domain);
}

// credit works off what each message says about credit. It returns false on a breach.
static bool credit(struct ep *ep, const struct head *h)
{
	uint16_t more = (uint16_t)(h->credit - (uint16_t)ep->acked);
	if (more == 0)
		return true;
	if (more > ep->sent - ep->acked)
		return false;
	ep->acked += more;
	while (!list_empty(&ep->shown) && used(ep, (struct tx *)ep->shown.next))
		tx_complete(ep, (struct tx *)list_pop(&ep->shown), 0);
	sends_complete(ep);
	if (!out_idle(ep))
		activate(ep);
	return true;
}

static bool freed(struct ep *ep, const uint8_t *body, uint32_t n)
{
	struct credit c;
	if (n < sizeof(c))
		return false;
	memcpy(&c, body, sizeof(c));
	if (c.ring < ep->ring.tail || c.ring > ep->ring.head)
		return false;
	ep->ring.tail = c.ring;
	sends_complete(ep);
	return true;
}

static bool done(struct ep *ep, const uint8_t *body, uint32_t n)
{
	struct done d;
	if (n < sizeof(d))
		return false;
	memcpy(&d, body, sizeof(d));
	struct tx *tx = ep->cookies[d.cookie % OUTSTANDING];
	if (tx == NULL || tx->cookie != d.cookie || tx == ep->current || tx->stage != TX_BEGUN || tx == ep->in.read)
		return false;
	// What was read comes by itself; only the refusal of a read is told.
	if (d.error == 0 && tx->kind != K_WRITE)
		return false;
	list_remove(&tx->link);
	tx_complete(ep, tx, d.error == 0 ? 0 : d.error < 4096 ? (int)d.error : FI_EIO);
	return true;
}

// control works off a message about what this end has sent. It returns false on a breach.
static bool control(struct ep *ep, uint8_t op, const uint8_t *body, uint32_t n)
{
	switch (op) {
	case OP_CREDIT:
		return freed(ep, body, n);
	case OP_DONE:
		return done(ep, body, n);
	default:
		return place_granted(ep, body, n);
	}
}

static void breach(struct ep *ep)
{
	WARN(EP_DATA, "the peer broke the protocol\n");
	(void)ep_on(ep, ON_BROKEN, FI_EIO);
}

static struct ep *receiver(struct domain *d, uint32_t id, uint32_t source)
{
	struct ep *ep = d->eps[id % d->eps_room];
	if (ep == NULL || ep->id != id || VELO2_ADDR_NODE(source) != ep->node || VELO2_ADDR_VPID(source) != ep->velo_vpid)
		return NULL;
	return ep;
}

static void dispatch(struct domain *d, const uint8_t *bytes, uint32_t len, uint32_t source)
{
	struct head h;
	if (len < HEAD)
		return;
	memcpy(&h, bytes, HEAD);
	struct ep *ep = receiver(d, h.id, source);
	if (ep == NULL)
		return;
	if (ep->state == ACCEPTING)
		(void)ep_on(ep, ON_FIRST, 0); // its READY has not been read yet
	if (!hears(ep->state)) // all has come, or it was never connected
		return;
	ep->heard++;
	bool ok = credit(ep, &h);
	switch (h.op) {
	case OP_CREDIT:
	case OP_DONE:
	case OP_GRANT:
		if (ep->state == ENDING) // what they are of has ended
			break;
		ok = ok && control(ep, h.op, bytes + HEAD, len - HEAD);
		break;
	case OP_CLOSE:
		if (ok)
			(void)ep_on(ep, ON_CLOSED, FI_ECONNABORTED);
		break;
	default:
		if (ok && ep->far)
			ok = in_announced(ep, bytes, len);
		if (!receives(ep->state))
			return;
		if (!ok || (ep->held_count == 0 && in_message(ep, bytes, len)))
			break;
		if (!receives(ep->state))
			return;
		if (ep->held_count == WINDOW) {
			ok = false;
			break;
		}
		struct held *x = &ep->held[(ep->held_first + ep->held_count++) % WINDOW];
		x->len = len;
		memcpy(x->bytes, bytes, len);
		activate(ep);
	}
	if (!ok)
		breach(ep);
	else if (ep->state == ENDING && ep->heard == ep->last)
		(void)ep_on(ep, ON_CLOSED, FI_ECONNABORTED);
}

// gone ends the endpoints whose peers had the mailbox; with every set, all.
static void gone(struct domain *d, uint32_t source, bool every)
{
	for (uint32_t i = 0; i < d->eps_room; i++) {
		struct ep *ep = d->eps[i];
		if (ep == NULL)
			continue;
		if (every || (ep->velo.state_map != NULL && ep->node == VELO2_ADDR_NODE(source) && ep->velo_vpid == VELO2_ADDR_VPID(source)))
			(void)ep_on(ep, ON_DIED, FI_ECONNABORTED);
	}
}

static void work(struct ep *ep)
{
	in_drain(ep);
	if (!receives(ep->state))
		return;
	tx_push(ep);
	if (out_idle(ep) && ep->held_count == 0)
		list_remove(&ep->active);
}

static void work_ends(struct domain *d)
{
	uint32_t source;
	while (velo2_ended(&d->velo, &source)) {
		gone(d, source, false);
		get_news(d);
	}
}

// take works off messages that have arrived, a turn of them. It returns why there were no more.
static velo2_ret_t take(struct domain *d)
{
	uint8_t bytes[VELO_MAX];
	uint32_t len, source;
	velo2_ret_t r = VELO2_RET_SUCCESS;
	for (int i = 0; i < TURN && (r == VELO2_RET_SUCCESS || r == VELO2_RET_INV_MSG); i++) {
		r = velo2_probe_recv(&d->velo, bytes, sizeof(bytes), &len, &source, NULL, NULL);
		if (r == VELO2_RET_SUCCESS)
			dispatch(d, bytes, len, source);
	}
	return r;
}

void take_ends(struct domain *d)
{
	velo2_ret_t r = VELO2_RET_SUCCESS;
	for (int i = 0; i < TURNS && (r == VELO2_RET_SUCCESS || r == VELO2_RET_INV_MSG); i++)
		r = take(d);
	if (r == VELO2_RET_NO_MSG)
		work_ends(d);
}

// receive takes what has arrived, and hears of ends.
static void receive(struct domain *d)
{
	velo2_ret_t r = take(d);
	if (r == VELO2_RET_NO_MSG)
		work_ends(d);
	if (r == VELO2_RET_ERROR) {
		WARN(DOMAIN, "the node has ended: start it (exn-tun up), and open the domain again\n");
		d->dead = true;
		get_lost(d);
		gone(d, 0, true);
		return;
	}
	if (!list_empty(&d->getting) || ++d->idle % RMA_EVERY == 0)
		get_news(d);
}

void progress(struct domain *d)
{
	if (d->fabric->child)
		return;
	if (!d->dead)
		receive(d);
	for (struct list *l = d->active.next, *next; l != &d->active; l = next) {
		next = l->next;
		work(of(l, struct ep, active));
	}
}

bool arm(struct domain *d)
{
	bool sleeps = true;
	for (struct list *l = d->active.next; l != &d->active; l = l->next) {
		struct ep *ep = of(l, struct ep, active);
		// It is told nothing when it can go on: the program has to ask again.
		sleeps = sleeps && !(sends(ep->state) && !out_idle(ep) && ep->waits == OUT_SELF);
	}
	// What has ended meanwhile is worked off before anybody sleeps.
	sleeps = sleeps && !get_news(d) && rma2_arm(d->rma) && velo2_arm(&d->velo);
	if (!sleeps) // another thread slept until the bell that was read here
		cq_wake_all(d);
	return sleeps;
}

// get.c: chunks of a peer on another host. The node GETs each of them into memory of the endpoint,
// its landing, while others are under way; the message that announces it waits (in.c) until its
// bytes are there.
#include "exnet.h"

// post begins the GETs that there is room for.
static void post(struct ep *ep)
{
	struct domain *d = ep->domain;
	while (ep->gets_posted < ep->gets_count) {
		struct get *g = &ep->gets[(ep->gets_first + ep->gets_posted) % WINDOW];
		if ((g->at = ring_take(&ep->landing, g->size)) == NULL)
			return;
		g->after = ep->landing.head;
		uint64_t local = ep->landing.nla + (uint64_t)(g->at - ep->landing.mem);
		RMA2_ERROR e = rma2_post_get_bt_direct(d->rma, ep->rma, local, g->size, g->nla, RMA2_COMPLETER_NOTIFICATION, 0);
		g->state = e == RMA2_SUCCESS ? GET_RUNS : GET_FAILED;
		ep->gets_posted++;
		if (g->state == GET_RUNS && ep->gets_running++ == 0)
			list_push(&d->getting, &ep->getting);
	}
}

bool get_expect(struct ep *ep, const struct chunk *c)
{
	if (c->size > FAR_CHUNK || ep->gets_count == WINDOW)
		return false;
	if (ep->landing.mem == NULL && !ring_open(ep->domain, &ep->landing, exfi_settings.far_ring)) {
		WARN(EP_DATA, "no memory is left to receive in from other hosts: lower FI_EXNET_FAR_RING, or close endpoints\n");
		(void)ep_on(ep, ON_BROKEN, FI_ENOMEM);
		return true;
	}
	ep->gets[(ep->gets_first + ep->gets_count++) % WINDOW] = (struct get){.nla = c->nla, .theirs = c->after, .size = c->size};
	post(ep);
	return true;
}

const struct get *get_head(const struct ep *ep)
{
	return ep->gets_count > 0 ? &ep->gets[ep->gets_first] : NULL;
}

void get_free(struct ep *ep)
{
	ep->landing.tail = ep->gets[ep->gets_first].after;
	ep->gets_first = (ep->gets_first + 1) % WINDOW;
	ep->gets_count--;
	ep->gets_posted--;
	if (ep->gets_landed > 0) // not of one that failed when it was begun
		ep->gets_landed--;
	post(ep);
}

static void finish(struct ep *ep, struct get *g, bool ok)
{
	g->state = ok ? GET_DONE : GET_FAILED;
	if (--ep->gets_running == 0)
		list_remove(&ep->getting);
	// The peer may use its ring again, and end.
	while (ep->gets_landed < ep->gets_posted && (g = &ep->gets[(ep->gets_first + ep->gets_landed) % WINDOW])->state != GET_RUNS) {
		ep->gets_landed++;
		ep->ring_used = g->theirs;
		ep->owe_credit = true;
	}
	activate(ep);
}

// ended works off the end of a GET at a local address, from a port. Those that an endpoint has
// given up are nobody's.
static void ended(struct domain *d, uint16_t node, uint16_t vpid, uint64_t local, bool ok)
{
	for (struct list *l = d->getting.next; l != &d->getting; l = l->next) {
		struct ep *ep = of(l, struct ep, getting);
		uint64_t at = local - ep->landing.nla;
		if (at >= ep->landing.size || ep->node != node || ep->rma_vpid != vpid)
			continue;
		for (unsigned i = 0; i < ep->gets_posted; i++) {
			struct get *g = &ep->gets[(ep->gets_first + i) % WINDOW];
			if (g->state == GET_RUNS && at - (uint64_t)(g->at - ep->landing.mem) < g->size) {
				finish(ep, g, ok);
				return;
			}
		}
	}
}

// lost ends the GETs from a port that has ended, or all.
static void lost(struct domain *d, uint16_t node, uint16_t vpid, bool all)
{
	for (struct list *l = d->getting.next, *next; l != &d->getting; l = next) {
		struct ep *ep = of(l, struct ep, getting);
		next = l->next;
		for (unsigned i = 0; (all || (ep->node == node && ep->rma_vpid == vpid)) && i < ep->gets_posted; i++) {
			struct get *g = &ep->gets[(ep->gets_first + i) % WINDOW];
			if (g->state == GET_RUNS)
				finish(ep, g, false);
		}
	}
}

void get_lost(struct domain *d) { lost(d, 0, 0, true); }

bool get_news(struct domain *d)
{
	RMA2_Notification *n, copy;
	bool any = false;
	while (rma2_noti_probe(d->rma, &n) == RMA2_SUCCESS) {
		if (rma2_noti_dup(n, &copy) != RMA2_SUCCESS)
			return any;
		any = true;
		bool bad = rma2_noti_get_error(&copy) != 0;
		uint16_t node = rma2_noti_get_remote_nodeid(&copy), vpid = rma2_noti_get_remote_vpid(&copy);
		if (rma2_noti_get_cmd(&copy) == RMA2_ANY)
			lost(d, node, vpid, false);
		else if (bad || rma2_noti_get_notification_type(&copy) == RMA2_COMPLETER_NOTIFICATION)
			ended(d, node, vpid, rma2_noti_get_local_address(&copy), !bad);
	}
	return any;
}

void get_end(struct ep *ep)
{
	if (ep->gets_running > 0) {
		list_remove(&ep->getting);
		ring_keep(ep->domain, &ep->landing); // the node still writes to it
	}
	ep->gets_running = ep->gets_count = ep->gets_posted = ep->gets_landed = 0;
	ring_close(ep->domain, &ep->landing);
}

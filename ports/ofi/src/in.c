// in.c: what an endpoint receives. Every message was copied before it comes here; each value is
// checked before it is used, and an impossible one ends the connection (a breach).
#include <stdlib.h>

#include "exnet.h"

static bool breach(struct ep *ep, const char *what)
{
	WARN(EP_DATA, "the peer broke the protocol: %s\n", what);
	ep->in.active = false;
	(void)ep_on(ep, ON_BROKEN, FI_EIO);
	return true;
}

static struct rx_queue *posted(struct ep *ep)
{
	return ep->srx != NULL ? &ep->srx->queue : &ep->rxq;
}

// spread calls put for each piece of iov that the bytes [off, off+n) of a message cover. Bytes
// beyond the iov are left out. It returns how many were covered, or -1 if put failed.
static int64_t spread(struct ep *ep, const struct iovec *iov, unsigned count, uint64_t off, uint64_t n, const uint8_t *from, uint64_t nla,
		      bool direct)
{
	uint64_t done = 0;
	for (unsigned i = 0; i < count && n > 0; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		uint64_t part = iov[i].iov_len - off;
		if (part > n)
			part = n;
		uint8_t *to = (uint8_t *)iov[i].iov_base + off;
		if (from != NULL)
			memcpy(to, from + done, part);
		else if (direct ? !direct_read(&ep->source, to, part, nla + done) : ep->far)
			return -1;
		else if (!direct && rma2_get_now(ep->domain->rma, ep->rma, to, (uint32_t)part, nla + done) != RMA2_SUCCESS)
			return -1;
		off = 0;
		n -= part;
		done += part;
	}
	return (int64_t)done;
}

// store puts the next n bytes where they belong: from a message, or got from the peer.
static bool store(struct ep *ep, uint64_t n, const uint8_t *from, uint64_t nla, bool direct)
{
	struct inbound *in = &ep->in;
	int64_t stored = 0;
	if (in->discard || n == 0) {
	} else if (in->kind == K_SEND) {
		stored = spread(ep, in->rx->iov, in->rx->count, in->got, n, from, nla, direct);
	} else if (in->kind == K_RESULT) {
		stored = spread(ep, in->read->iov, in->read->count, in->got, n, from, nla, direct);
	} else {
		struct iovec to = {in->at, in->length};
		stored = spread(ep, &to, 1, in->got, n, from, nla, direct);
	}
	if (stored < 0)
		return false;
	in->got += n;
	in->stored += (uint64_t)stored;
	return true;
}

static void received(struct ep *ep, struct rx *rx, uint64_t length, uint64_t stored, bool has_data, uint64_t data)
{
	uint64_t flags = FI_MSG | FI_RECV | (has_data ? FI_REMOTE_CQ_DATA : 0);
	void *buf = rx->count > 0 ? rx->iov[0].iov_base : NULL;
	if (ep->rx_cq != NULL && stored < length)
		cq_error(ep->rx_cq, rx->context, flags, FI_ETRUNC, stored, length - stored);
	else if (ep->rx_cq != NULL && (!ep->rx_selective || (rx->flags & FI_COMPLETION)))
		cq_add(ep->rx_cq, rx->context, flags, length, buf, data);
	if (ep->cntr[1] != NULL)
		cntr_add(ep->cntr[1], stored < length);
	rx_free(posted(ep), rx);
}

// finish ends the message under way. It returns false on a breach.
static bool finish(struct ep *ep)
{
	struct inbound in = ep->in;
	ep->in = (struct inbound){0};
	switch (in.kind) {
	case K_SEND:
		received(ep, in.rx, in.length, in.stored, in.has_data, in.data);
		return true;
	case K_RESULT:
		if (in.read != NULL)
			tx_complete(ep, in.read, 0);
		return true;
	}
	if (in.error == 0 && in.has_data && ep->rx_cq != NULL)
		cq_add(ep->rx_cq, NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, in.length, NULL, in.data);
	if (in.mr != NULL && in.length >= PLACE_MIN)
		place_offer(ep, in.mr);
	if (in.error == 0 && in.mr != NULL && in.mr->cntr != NULL)
		cntr_add(in.mr->cntr, false);
	return out_owe(ep, in.cookie, in.error);
}

static struct tx *by_cookie(struct ep *ep, uint32_t cookie, enum kind kind)
{
	struct tx *tx = ep->cookies[cookie % OUTSTANDING];
	// It has begun: it is in the list of those that wait.
	return tx != NULL && tx->cookie == cookie && tx->kind == kind && tx->stage == TX_BEGUN && tx != ep->current ? tx : NULL;
}

// whole works off a message that is one.
static bool whole(struct ep *ep, const struct head *h, const uint8_t *body, uint32_t n)
{
	uint64_t data = 0;
	if ((h->flags & F_DATA) && n < 8)
		return breach(ep, "immediate data without data");
	if (ep->in.active)
		return breach(ep, "a message within a message");
	if (ep->rx_cq != NULL && cq_full(ep->rx_cq))
		return false;
	struct rx *rx = rx_take(posted(ep));
	if (rx == NULL)
		return false;
	if (h->flags & F_DATA) {
		memcpy(&data, body, 8);
		body += 8;
		n -= 8;
	}
	int64_t stored = n == 0 ? 0 : spread(ep, rx->iov, rx->count, 0, n, body, 0, false);
	received(ep, rx, n, (uint64_t)stored, h->flags & F_DATA, data);
	return true;
}

// answer queues what a peer wants to read.
static bool answer(struct ep *ep, const struct begin *b)
{
	uint8_t *at = NULL;
	if (ep->reply_count >= OUTSTANDING)
		return breach(ep, "too many reads");
	struct mr *mr = mr_find(ep->domain, b->key, b->addr, b->length, FI_REMOTE_READ, &at);
	struct tx *tx = mr != NULL ? tx_new(ep) : NULL;
	if (mr != NULL && b->length >= PLACE_MIN)
		place_offer(ep, mr);
	if (tx == NULL)
		return out_owe(ep, b->cookie, mr != NULL ? FI_ENOMEM : FI_EACCES) || breach(ep, "too many reads");
	tx->kind = K_RESULT;
	tx->cookie = b->cookie;
	tx->iov[0] = (struct iovec){at, b->length};
	tx->count = 1;
	tx->size = b->length;
	tx->mr = mr;
	ep->reply_count++;
	list_push(&ep->replies, &tx->link);
	activate(ep);
	return true;
}

// prepare finds the place for what begins. It returns false if there is none yet.
static bool prepare(struct ep *ep, const struct begin *b, bool has_data)
{
	struct inbound in = {.active = true, .kind = b->kind, .length = b->length, .cookie = b->cookie, .data = b->data, .has_data = has_data};
	switch (b->kind) {
	case K_SEND:
		if ((ep->rx_cq != NULL && cq_full(ep->rx_cq)) || (in.rx = rx_take(posted(ep))) == NULL)
			return false;
		break;
	case K_WRITE:
		if (has_data && ep->rx_cq != NULL && cq_full(ep->rx_cq))
			return false;
		in.mr = mr_find(ep->domain, b->key, b->addr, b->length, FI_REMOTE_WRITE, &in.at);
		in.discard = in.mr == NULL;
		in.error = in.discard ? FI_EACCES : 0;
		break;
	case K_RESULT:
		in.read = by_cookie(ep, b->cookie, K_READ);
		in.discard = in.read == NULL && !sends(ep->state); // the read has ended with the peer
		if (in.discard)
			break;
		if (in.read == NULL || in.read->size != b->length)
			return breach(ep, "an answer that was not asked for");
		list_remove(&in.read->link); // from now on it is the inbound message's
		break;
	}
	ep->in = in;
	return true;
}

// give_up ends a write or read whose bytes the peer has given up: it has closed, or died. What it
// sent behind that may be complete. It returns false for a message: nothing behind that is.
static bool give_up(struct ep *ep)
{
	struct inbound *in = &ep->in;
	if (in->kind == K_SEND)
		return false;
	in->discard = true;
	in->mr = NULL;
	in->error = FI_ECONNABORTED;
	struct tx *read = in->read;
	in->read = NULL;
	if (read != NULL)
		tx_complete(ep, read, FI_ECONNABORTED);
	return true;
}

// add works off the bytes of a message: in it, or a chunk.
static bool add(struct ep *ep, uint64_t n, const uint8_t *from, uint64_t nla, uint64_t after, bool direct)
{
	const bool got = from == NULL && ep->far && !direct;
	const struct get *g = got ? get_head(ep) : NULL;
	if (!ep->in.active || n > ep->in.length - ep->in.got || n > CHUNK_MAX)
		return breach(ep, "more bytes than announced");
	const bool failed = g != NULL && g->state == GET_FAILED;
	if ((got && (g == NULL || (!failed && g->state != GET_DONE) || g->size != n)) || (direct && !ep->source.reads))
		return breach(ep, "bytes that cannot be got");
	if (failed || !store(ep, n, g != NULL ? g->at : from, nla, direct)) {
		if (!give_up(ep)) {
			(void)ep_on(ep, ON_BROKEN, FI_ECONNABORTED);
			return true;
		}
		(void)store(ep, n, NULL, 0, false); // which discards
	}
	if (g != NULL)
		get_free(ep);
	if (after != 0 && g == NULL) {
		ep->ring_used = after;
		if (ep->ring_used - ep->ring_told >= CREDIT_BYTES) {
			ep->owe_credit = true;
			activate(ep);
		}
	}
	if (ep->in.got == ep->in.length && !finish(ep))
		return breach(ep, "too many writes");
	return true;
}

static bool start(struct ep *ep, const struct head *h, const uint8_t *body, uint32_t n)
{
	struct begin b;
	if (n < sizeof(b))
		return breach(ep, "a short begin");
	memcpy(&b, body, sizeof(b));
	n -= (uint32_t)sizeof(b);
	if (ep->in.active)
		return breach(ep, "a message within a message");
	if (b.kind == K_READ)
		return b.size > 0 ? breach(ep, "a read with bytes") : answer(ep, &b);
	if (b.kind != K_SEND && b.kind != K_WRITE && b.kind != K_RESULT)
		return breach(ep, "an unknown kind");
	if ((h->flags & F_PLACED) && (b.kind != K_WRITE || b.size > 0 || n > 0))
		return breach(ep, "bytes of what was placed");
	if (!prepare(ep, &b, h->flags & F_DATA))
		return false;
	if (!receives(ep->state))
		return true;
	if (h->flags & F_PLACED)
		return finish(ep) || breach(ep, "too many writes");
	if (b.size > 0 && n == 0)
		return add(ep, b.size, NULL, b.nla, b.after, h->flags & F_DIRECT);
	return b.size == 0 ? add(ep, n, body + sizeof(b), 0, 0, false) : breach(ep, "a begin with two kinds of bytes");
}

// announces returns whether a message announces a chunk: where, and how many bytes.
static bool announces(const uint8_t *bytes, uint32_t len, struct chunk *c)
{
	struct head h;
	struct begin b;
	memcpy(&h, bytes, HEAD);
	len -= HEAD;
	if (h.op == OP_CHUNK && len >= sizeof(*c)) {
		memcpy(c, bytes + HEAD, sizeof(*c));
		return c->size > 0 && !(h.flags & F_DIRECT);
	}
	if (h.op != OP_BEGIN || len != sizeof(b))
		return false;
	memcpy(&b, bytes + HEAD, sizeof(b));
	*c = (struct chunk){.nla = b.nla, .after = b.after, .size = b.size};
	return b.size > 0 && b.kind != K_READ && !(h.flags & F_DIRECT);
}

bool in_announced(struct ep *ep, const uint8_t *bytes, uint32_t len)
{
	struct chunk c;
	return !announces(bytes, len, &c) || get_expect(ep, &c);
}

// comes returns whether the bytes that a message announces are still on their way.
static bool comes(const struct ep *ep, const uint8_t *bytes, uint32_t len)
{
	struct chunk c;
	const struct get *g = get_head(ep);
	return announces(bytes, len, &c) && g != NULL && (g->state == GET_WAITS || g->state == GET_RUNS);
}

bool in_message(struct ep *ep, const uint8_t *bytes, uint32_t len)
{
	struct head h;
	struct chunk c;
	memcpy(&h, bytes, HEAD);
	const uint8_t *body = bytes + HEAD;
	uint32_t n = len - HEAD;
	bool done;
	if (ep->far && comes(ep, bytes, len))
		return false;
	switch (h.op) {
	case OP_MSG:
		done = whole(ep, &h, body, n);
		break;
	case OP_BEGIN:
		done = start(ep, &h, body, n);
		break;
	case OP_PIECE:
		done = n > 0 ? add(ep, n, body, 0, 0, false) : breach(ep, "an empty piece");
		break;
	case OP_CHUNK:
		if (n < sizeof(c))
			return breach(ep, "a short chunk");
		memcpy(&c, body, sizeof(c));
		done = c.size > 0 ? add(ep, c.size, NULL, c.nla, c.after, h.flags & F_DIRECT) : breach(ep, "an empty chunk");
		break;
	default:
		return breach(ep, "an unknown message");
	}
	if (done && receives(ep->state)) {
		ep->used++;
		if ((h.flags & F_ASK) || ep->used - ep->told >= TELL) {
			ep->owe_credit = true;
			activate(ep);
		}
	}
	return done;
}

void in_drain(struct ep *ep)
{
	while (ep->held_count > 0 && receives(ep->state)) {
		struct held m = ep->held[ep->held_first];
		if (!in_message(ep, m.bytes, m.len))
			return;
		if (!receives(ep->state))
			return;
		ep->held_first = (ep->held_first + 1) % WINDOW;
		ep->held_count--;
	}
	if (ep->held_count == 0 && ep->state == DRAINING)
		(void)ep_on(ep, ON_EMPTY, FI_ECONNABORTED);
}

void rx_fail(struct ep *ep, struct rx *rx, int error)
{
	if (ep->rx_cq != NULL)
		cq_error(ep->rx_cq, rx->context, FI_MSG | FI_RECV, error, 0, 0);
	if (ep->cntr[1] != NULL)
		cntr_add(ep->cntr[1], true);
	rx_free(posted(ep), rx);
}

void in_abort(struct ep *ep, int error)
{
	struct tx *tx = ep->in.read;
	if (tx == NULL)
		return;
	ep->in = (struct inbound){0};
	tx_complete(ep, tx, error);
}

void in_end(struct ep *ep, int error)
{
	struct inbound in = ep->in;
	ep->in = (struct inbound){0};
	ep->held_count = 0;
	if (in.rx != NULL)
		rx_fail(ep, in.rx, error);
}

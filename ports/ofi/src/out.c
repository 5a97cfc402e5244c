// out.c: what an endpoint sends. Operations wait in a queue and are sent one after the other, as
// far as credit, slots of the peer's mailbox, and the ring last.
#include <stdlib.h>

#include "exnet.h"

struct tx *tx_new(struct ep *ep)
{
	struct tx *tx = (struct tx *)list_pop(&ep->free);
	if (tx == NULL && (tx = malloc(sizeof(*tx))) == NULL)
		return NULL;
	memset(tx, 0, offsetof(struct tx, copy));
	list_init(&tx->link);
	return tx;
}

void tx_free(struct ep *ep, struct tx *tx)
{
	list_push(&ep->free, &tx->link);
}

// release gives back the cookie of a read or write.
static void release(struct ep *ep, struct tx *tx)
{
	unsigned at = tx->cookie % OUTSTANDING;
	if (ep->cookies[at] == tx) {
		ep->cookies[at] = NULL;
		ep->cookies_used--;
	}
}

void tx_complete(struct ep *ep, struct tx *tx, int error)
{
	static const uint8_t counter[] = {[K_SEND] = 0, [K_READ] = 2, [K_WRITE] = 3};
	release(ep, tx);
	if (tx->kind == K_RESULT) {
		ep->reply_count--;
		tx_free(ep, tx);
		return;
	}
	uint64_t flags = tx->kind == K_SEND ? FI_MSG | FI_SEND : tx->kind == K_READ ? FI_RMA | FI_READ : FI_RMA | FI_WRITE;
	ep->queued--;
	if (error != 0 && ep->tx_cq != NULL)
		cq_error(ep->tx_cq, tx->context, flags, error, 0, 0);
	else if (error == 0 && !tx->quiet && ep->tx_cq != NULL)
		cq_add(ep->tx_cq, tx->context, flags, tx->size, NULL, 0);
	if (ep->cntr[counter[tx->kind]] != NULL)
		cntr_add(ep->cntr[counter[tx->kind]], error != 0);
	tx_free(ep, tx);
}

bool out_post(struct ep *ep, enum op op, uint8_t flags, const void *a, size_t alen, const void *b, size_t blen, bool credit)
{
	uint8_t m[VELO_MAX];
	struct head h = {ep->peer_id, (uint16_t)ep->used, (uint8_t)op, flags};
	if (credit && ep->sent - ep->acked >= WINDOW)
		return false;
	memcpy(m, &h, HEAD);
	if (alen > 0)
		memcpy(m + HEAD, a, alen);
	if (blen > 0)
		memcpy(m + HEAD + alen, b, blen);
	if (velo2_try_send(&ep->velo, m, (unsigned)(HEAD + alen + blen), 0, 0) != VELO2_RET_SUCCESS) {
		ep->waits = OUT_SELF;
		return false;
	}
	ep->told = ep->used;
	ep->posted++;
	if (credit)
		ep->sent++;
	return true;
}

bool out_owe(struct ep *ep, uint32_t cookie, uint32_t error)
{
	if (ep->owed_count == OUTSTANDING)
		return false;
	ep->owed[(ep->owed_first + ep->owed_count++) % OUTSTANDING] = (struct done){cookie, error};
	activate(ep);
	return true;
}

// peek copies the next n bytes of an operation.
static void peek(const struct tx *tx, uint8_t *to, size_t n)
{
	unsigned i = tx->iov_at;
	size_t off = tx->iov_off;
	for (size_t part; n > 0; n -= part, to += part, i++, off = 0) {
		part = tx->iov[i].iov_len - off;
		if (part > n)
			part = n;
		if (part > 0)
			memcpy(to, (const uint8_t *)tx->iov[i].iov_base + off, part);
	}
}

void tx_skip(struct tx *tx, size_t n)
{
	tx->sent += n;
	while (n > 0) {
		size_t left = tx->iov[tx->iov_at].iov_len - tx->iov_off;
		if (n < left) {
			tx->iov_off += n;
			return;
		}
		n -= left;
		tx->iov_at++;
		tx->iov_off = 0;
	}
}

// whole sends an operation that fits one message.
static bool whole(struct ep *ep, struct tx *tx)
{
	uint8_t bytes[INLINE];
	uint8_t flags = (uint8_t)((tx->has_data ? F_DATA : 0) | (tx->deliver ? F_ASK : 0));
	peek(tx, bytes, tx->size);
	if (!out_post(ep, OP_MSG, flags, &tx->data, tx->has_data ? 8 : 0, bytes, tx->size, true))
		return false;
	tx_step(&tx->stage, TX_SENT);
	tx->sent = tx->size;
	return true;
}

// lend copies the next bytes into the ring, and says where they are. It returns false if the ring
// is full, or cannot be made: then they go in pieces.
static bool lend(struct ep *ep, struct tx *tx, struct chunk *c)
{
	struct ring *r = &ep->ring;
	size_t n = tx->size - tx->sent, most = r->size / 8;
	if (ep->far && most > ep->far_chunk)
		most = ep->far_chunk;
	if (n > most)
		n = most;
	uint8_t *to = ring_take(r, n);
	if (to == NULL)
		return false;
	peek(tx, to, n);
	tx->after = r->head;
	*c = (struct chunk){.nla = r->nla + (uint64_t)(to - r->mem), .after = r->head, .size = (uint32_t)n};
	return true;
}

// shows says where the next bytes are in this program. The peer reads them there.
static void show(const struct tx *tx, struct chunk *c)
{
	unsigned i = tx->iov_at;
	size_t off = tx->iov_off;
	for (; tx->iov[i].iov_len == off; off = 0)
		i++;
	size_t n = tx->iov[i].iov_len - off;
	*c = (struct chunk){.nla = (uintptr_t)tx->iov[i].iov_base + off, .size = (uint32_t)(n < DIRECT_MAX ? n : DIRECT_MAX)};
}

// shows returns whether the peer reads an operation's bytes in this program. A message is complete
// only then, so one that fits the ring is not shown: it does not wait for a receive.
static bool shows(const struct ep *ep, const struct tx *tx)
{
	return ep->direct && tx->kind != K_READ && tx->size > (tx->kind == K_SEND ? exfi_settings.ring : DIRECT_MIN);
}

static bool lends(struct ep *ep, const struct tx *tx)
{
	size_t pieces = exfi_settings.pieces, size = exfi_settings.ring;
	if (ep->far) {
		pieces = pieces > FAR_PIECES ? pieces : FAR_PIECES;
		size = exfi_settings.far_ring;
	}
	return tx->kind != K_READ && tx->size > pieces && (ep->ring.mem != NULL || ring_open(ep->domain, &ep->ring, size));
}

static bool may_post(struct ep *ep)
{
	if (ep->sent - ep->acked >= WINDOW)
		return false;
	if (velo2_has_room(&ep->velo))
		return true;
	ep->waits = OUT_SELF;
	return false;
}

static bool begin(struct ep *ep, struct tx *tx)
{
	struct begin b = {.kind = (uint8_t)tx->kind, .cookie = tx->cookie, .length = tx->size, .data = tx->data, .addr = tx->addr, .key = tx->key};
	struct chunk c;
	uint8_t bytes[INLINE - sizeof(b)];
	size_t n = 0;
	bool last = false, placed = tx->stage == TX_TELLING, direct = tx->direct = !placed && shows(ep, tx);
	if (!may_post(ep))
		return false;
	if (tx->kind == K_READ || placed) {
		last = true;
	} else if (direct) {
		show(tx, &c);
		tx->deliver = tx->kind != K_WRITE; // a write is answered
		b.nla = c.nla;
		n = b.size = c.size;
	} else if (lends(ep, tx)) {
		if (!lend(ep, tx, &c))
			return false;
		b.nla = c.nla;
		b.after = c.after;
		n = b.size = c.size;
	} else {
		n = tx->size < sizeof(bytes) ? tx->size : sizeof(bytes);
		peek(tx, bytes, n);
	}
	last = last || n == tx->size;
	uint8_t flags = (uint8_t)((tx->has_data ? F_DATA : 0) | (tx->deliver && last ? F_ASK : 0) | (direct ? F_DIRECT : 0) | (placed ? F_PLACED : 0));
	if (!out_post(ep, OP_BEGIN, flags, &b, sizeof(b), bytes, b.size > 0 ? 0 : n, true))
		return false;
	tx_step(&tx->stage, TX_SENT);
	if (tx->kind != K_READ && !placed)
		tx_skip(tx, n);
	return true;
}

static bool more(struct ep *ep, struct tx *tx)
{
	struct chunk c;
	uint8_t bytes[INLINE];
	size_t n = tx->size - tx->sent;
	if (!may_post(ep))
		return false;
	if (tx->direct) { // as it has begun
		show(tx, &c);
		n = c.size;
		uint8_t flags = F_DIRECT | (tx->deliver && tx->sent + n == tx->size ? F_ASK : 0);
		if (!out_post(ep, OP_CHUNK, flags, &c, sizeof(c), NULL, 0, true))
			return false;
	} else if (lends(ep, tx)) {
		if (!lend(ep, tx, &c))
			return false;
		n = c.size;
		if (!out_post(ep, OP_CHUNK, tx->deliver && tx->sent + n == tx->size ? F_ASK : 0, &c, sizeof(c), NULL, 0, true))
			return false;
	} else {
		if (n > sizeof(bytes))
			n = sizeof(bytes);
		peek(tx, bytes, n);
		if (!out_post(ep, OP_PIECE, tx->deliver && tx->sent + n == tx->size ? F_ASK : 0, bytes, n, NULL, 0, true))
			return false;
	}
	tx_skip(tx, n);
	return true;
}

// cookie gives a read or write a number for its answer. It returns false if none is left.
static bool cookie(struct ep *ep, struct tx *tx)
{
	if (ep->cookies_used == OUTSTANDING)
		return false;
	uint32_t n = ep->cookie_gen;
	while (ep->cookies[n % OUTSTANDING] != NULL)
		n++;
	ep->cookies[n % OUTSTANDING] = tx;
	ep->cookies_used++;
	ep->cookie_gen = n + 1;
	tx->cookie = n;
	return true;
}

// next takes the operation to send now: answers come first.
static struct tx *next(struct ep *ep)
{
	struct tx *tx;
	if (!list_empty(&ep->replies))
		return (struct tx *)list_pop(&ep->replies);
	if (list_empty(&ep->queue))
		return NULL;
	tx = (struct tx *)ep->queue.next;
	if (place_waits(ep, tx))
		return NULL;
	if ((tx->kind == K_WRITE || tx->kind == K_READ) && !cookie(ep, tx))
		return NULL;
	list_remove(&tx->link);
	return tx;
}

static bool advance(struct ep *ep, struct tx *tx)
{
	if (tx->stage != TX_BEGUN) {
		if (tx->stage != TX_TELLING && !place(ep, tx))
			return false;
		if (tx->stage == TX_PLACED)
			return true;
		if (tx->kind == K_SEND && tx->size <= INLINE - (tx->has_data ? 8u : 0u))
			return whole(ep, tx);
		if (!begin(ep, tx))
			return false;
	}
	while (tx->kind != K_READ && tx->sent < tx->size)
		if (!more(ep, tx))
			return false;
	return true;
}

// ended returns whether a send that was sent is complete by itself.
static bool ended(const struct ep *ep, const struct tx *tx)
{
	if (used(ep, tx))
		return true;
	// To another host the ring's bytes have to be there: it ends with this process.
	return !tx->deliver && (!ep->far || tx->after <= ep->ring.tail);
}

void sends_complete(struct ep *ep)
{
	while (!list_empty(&ep->sends) && ended(ep, (struct tx *)ep->sends.next))
		tx_complete(ep, (struct tx *)list_pop(&ep->sends), 0);
}

static void sent(struct ep *ep, struct tx *tx)
{
	tx->seq = ep->sent;
	if (tx->stage == TX_PLACED)
		tx_complete(ep, tx, 0);
	else if (tx->kind == K_WRITE || tx->kind == K_READ)
		list_push(&ep->waiting, &tx->link);
	else if (tx->kind == K_SEND)
		list_push(&ep->sends, &tx->link);
	else if (tx->deliver)
		list_push(&ep->shown, &tx->link);
	else
		tx_complete(ep, tx, 0);
}

void tx_push(struct ep *ep)
{
	if (!sends(ep->state))
		return;
	ep->waits = OUT_PEER;
	while (ep->owed_count > 0) {
		struct done *d = &ep->owed[ep->owed_first];
		if (!out_post(ep, OP_DONE, 0, d, sizeof(*d), NULL, 0, false))
			return;
		ep->owed_first = (ep->owed_first + 1) % OUTSTANDING;
		ep->owed_count--;
	}
	while (ep->current != NULL || (ep->current = next(ep)) != NULL) {
		struct tx *tx = ep->current;
		if (!advance(ep, tx))
			break;
		ep->current = NULL;
		sent(ep, tx);
		sends_complete(ep);
	}
	// What was sent just now may have told the credit.
	if (ep->owe_credit && (ep->told != ep->used || ep->ring_told != ep->ring_used)) {
		struct credit c = {ep->ring_used};
		if (!out_post(ep, OP_CREDIT, 0, &c, sizeof(c), NULL, 0, false))
			return;
		ep->ring_told = ep->ring_used;
	}
	ep->owe_credit = false;
}

bool out_idle(const struct ep *ep)
{
	return ep->current == NULL && list_empty(&ep->queue) && list_empty(&ep->replies) && ep->owed_count == 0 && !ep->owe_credit;
}

void tx_submit(struct ep *ep, struct tx *tx)
{
	ep->queued++;
	list_push(&ep->queue, &tx->link);
	tx_push(ep);
	if (!out_idle(ep))
		activate(ep);
}

// queue.c: the notification queue.
#include <stdlib.h>

#include "rma.h"

enum { CHUNK = 256 };

struct chunk {
	struct chunk *next;
	struct entry entries[CHUNK];
};

static void list_init(struct entry *head)
{
	head->next = head->prev = head;
}

static void list_add(struct entry *head, struct entry *x)
{
	x->prev = head->prev;
	x->next = head;
	head->prev->next = x;
	head->prev = x;
}

static void list_remove(struct entry *x)
{
	x->prev->next = x->next;
	x->next->prev = x->prev;
}

void rma_queue_init(RMA2_Port e)
{
	list_init(&e->waiting);
	list_init(&e->taken);
	e->entries_max = RMA_QUEUE / sizeof(RMA2_Notification);
}

void rma_queue_free(RMA2_Port e)
{
	while (e->chunks != NULL) {
		struct chunk *c = e->chunks;
		e->chunks = c->next;
		free(c);
	}
}

// entry_new returns an entry that is in no list, or NULL if max are in use or there is no memory.
static struct entry *entry_new(RMA2_Port e, size_t max)
{
	if (e->entries >= max)
		return NULL;
	if (e->free == NULL) {
		struct chunk *c = malloc(sizeof(*c));
		if (c == NULL)
			return NULL;
		c->next = e->chunks;
		e->chunks = c;
		for (int i = 0; i < CHUNK; i++) {
			c->entries[i].next = e->free;
			e->free = &c->entries[i];
		}
	}
	struct entry *x = e->free;
	e->free = x->next;
	x->port = e;
	e->entries++;
	return x;
}

static void entry_free(struct entry *x)
{
	RMA2_Port e = x->port;
	x->port = NULL;
	x->next = e->free;
	e->free = x;
	e->entries--;
}

static RMA2_ERROR note(RMA2_Port e, RMA2_Notification n, size_t max)
{
	struct entry *x = entry_new(e, max);
	if (x == NULL)
		return RMA2_ERR_NO_DESC_MEM;
	x->noti = n;
	list_add(&e->waiting, x);
	return RMA2_SUCCESS;
}

RMA2_ERROR rma_note(RMA2_Port e, RMA2_Notification n)
{
	return note(e, n, e->entries_max);
}

// arrive takes a notification that a peer has written. Its source is the flow's writer, not what
// it claims, and that a peer has ended only rma_peer_gone says.
static struct entry *arrive(RMA2_Port e)
{
	uint64_t words[EXN_SLOT_MAX / 8], status;
	uint16_t node, vpid;
	struct entry *x = entry_new(e, e->entries_max);
	if (x == NULL)
		return NULL;
	if (!exn_port_take(&e->port, words, &status, &node, &vpid)) {
		entry_free(x);
		return NULL;
	}
	x->noti.word0.value = words[0];
	x->noti.word1.value =
		(words[1] & ~(0xffffull << 32 | 0xffull << 23)) | (uint64_t)node << 32 | (uint64_t)(vpid & 0xff) << 23;
	if (rma2_noti_get_cmd(&x->noti) == RMA2_ANY)
		x->noti.word1.value &= ~(6ull << 51); // 9: no command
	exn_count(&e->port, EXN_RECEIVED, 1);
	return x;
}

// gather takes all notifications that have arrived.
static void gather(RMA2_Port e)
{
	struct entry *x;
	while ((x = arrive(e)) != NULL)
		list_add(&e->waiting, x);
}

void rma_peer_gone(struct exn_port *p, uint16_t node, uint16_t vpid)
{
	RMA2_Port e = p->owner;
	RMA2_Connection c = {.node = node, .vpid = vpid};
	gather(e);
	// It may exceed a queue that peers have filled: nothing else wakes a program that waits
	// for this peer. If it still does not fit, the next operation reports the end.
	(void)note(e, rma_noti_error(rma_noti(&c, RMA2_REQUESTER_NOTIFICATION, RMA2_ANY, 0), RMA2_ERROR_RESP | RMA2_ERROR_CMPL),
		   2 * e->entries_max);
}

RMA2_ERROR rma_room(RMA2_Port e, RMA2_Connection *c)
{
	unsigned round = 0;
	while (!exn_flow_room(&c->grant->out)) {
		gather(e); // the peer may wait for room here
		if (!exn_port_wait(&e->port, c->grant, &round))
			return RMA2_ERR_NO_CONNECT;
	}
	return RMA2_SUCCESS;
}

void rma_tell(RMA2_Port e, RMA2_Connection *c, RMA2_Notification n, uint32_t size)
{
	uint64_t *slot = (uint64_t *)exn_flow_slot(&c->grant->out);
	slot[1] = n.word0.value;
	slot[2] = n.word1.value;
	exn_port_commit(&e->port, c->grant, 16 | (uint64_t)(size & 0xffffff) << 8);
}

// wanted is what a notification must match.
struct wanted {
	unsigned command, type, node, vpid, class;
	uint64_t nla;
	uint32_t lock;
	bool last; // the NLA is the last packet's
};

static bool command_matches(unsigned want, unsigned is)
{
	switch (want) {
	case RMA2_ANY:
		return true;
	case RMA2_PUTS:
		return is == RMA2_BT_PUT || is == RMA2_QW_PUT || is == RMA2_IMMEDIATE_PUT || is == RMA2_NOTIFICATION_PUT;
	case RMA2_GETS:
		return is == RMA2_BT_GET || is == RMA2_QW_GET || is == RMA2_GET_BT_RSP || is == RMA2_GET_QW_RSP;
	}
	return want == is;
}

static bool matches(const struct wanted *w, RMA2_Notification *n)
{
	if (!command_matches(w->command, rma2_noti_get_cmd(n)) || (w->type & rma2_noti_get_notification_type(n)) == 0)
		return false;
	if (w->node != RMA2_NODEID_ANY && w->node != rma2_noti_get_remote_nodeid(n))
		return false;
	if (w->vpid != RMA2_VPID_ANY && w->vpid != rma2_noti_get_remote_vpid(n))
		return false;
	if (w->class != RMA2_CLASS_ANY && w->class != rma2_noti_get_notiput_class(n))
		return false;
	if (w->lock != RMA2_LOCK_ANY && w->lock != rma2_noti_get_lock_number(n))
		return false;
	uint64_t last = rma2_noti_get_local_address(n), off = last - w->nla;
	return w->nla == RMA2_ANY_NLA || (w->last ? off == 0 : off < RMA_MAX_TRANSFER && off % RMA_MTU == 0);
}

static RMA2_ERROR take(RMA2_Port e, struct entry *x, RMA2_Notification **out)
{
	list_add(&e->taken, x);
	*out = &x->noti;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_noti_probe(RMA2_Port e, RMA2_Notification **out)
{
	*out = NULL;
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	struct entry *x = e->waiting.next;
	if (x != &e->waiting) {
		list_remove(x);
		return take(e, x, out);
	}
	if ((x = arrive(e)) == NULL) {
		if ((x = e->waiting.next) == &e->waiting) // gather may have queued a peer's end
			return RMA2_NO_NOTI;
		list_remove(x);
	}
	return take(e, x, out);
}

API RMA2_ERROR rma2_noti_get_block(RMA2_Port e, RMA2_Notification **out)
{
	RMA2_ERROR err;
	while ((err = rma2_noti_probe(e, out)) == RMA2_NO_NOTI) {
		if (exn_dead(&e->port))
			return RMA2_ERR_ERROR;
		if (e->entries >= e->entries_max)
			return RMA2_ERR_NO_DESC_MEM;
		exn_port_sleep(&e->port);
	}
	return err;
}

static RMA2_ERROR match(RMA2_Port e, const struct wanted *w, bool block, RMA2_Notification **out)
{
	*out = NULL;
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	for (;;) {
		gather(e);
		for (struct entry *x = e->waiting.next; x != &e->waiting; x = x->next)
			if (matches(w, &x->noti)) {
				list_remove(x);
				return take(e, x, out);
			}
		if (!block)
			return RMA2_NO_NOTI;
		if (exn_dead(&e->port))
			return RMA2_ERR_ERROR;
		if (e->entries >= e->entries_max)
			return RMA2_ERR_NO_DESC_MEM;
		exn_port_sleep(&e->port);
	}
}

API RMA2_ERROR rma2_noti_match(RMA2_Port e, RMA2_Command cmd, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification_Spec type,
			       RMA2_NLA nla, int flags, RMA2_Notification **out)
{
	struct wanted w = {cmd, type, node, vpid, RMA2_CLASS_ANY, nla, RMA2_LOCK_ANY, flags & RMA2_MATCH_LAST_NLA_FLAG};
	return match(e, &w, flags & RMA2_BLOCK_FLAG, out);
}

API RMA2_ERROR rma2_noti_match_block(RMA2_Port e, RMA2_Command cmd, RMA2_Nodeid node, RMA2_VPID vpid,
				     RMA2_Notification_Spec type, RMA2_NLA nla, int flags, RMA2_Notification **out)
{
	return rma2_noti_match(e, cmd, node, vpid, type, nla, flags | (int)RMA2_BLOCK_FLAG, out);
}

static RMA2_ERROR match_noti(RMA2_Port e, RMA2_Class class, RMA2_Nodeid node, RMA2_VPID vpid, bool block, RMA2_Notification **out)
{
	struct wanted w = {RMA2_NOTIFICATION_PUT, RMA2_COMPLETER_NOTIFICATION, node, vpid, class, RMA2_ANY_NLA, RMA2_LOCK_ANY, false};
	return match(e, &w, block, out);
}

API RMA2_ERROR rma2_noti_noti_match(RMA2_Port e, RMA2_Class class, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification **out)
{
	return match_noti(e, class, node, vpid, false, out);
}

API RMA2_ERROR rma2_noti_noti_match_block(RMA2_Port e, RMA2_Class class, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification **out)
{
	return match_noti(e, class, node, vpid, true, out);
}

static RMA2_ERROR match_lock(RMA2_Port e, uint32_t lock, RMA2_Nodeid node, RMA2_VPID vpid, bool block, RMA2_Notification **out)
{
	struct wanted w = {RMA2_LOCK_RSP, RMA2_COMPLETER_NOTIFICATION, node, vpid, RMA2_CLASS_ANY, RMA2_ANY_NLA, lock, false};
	return match(e, &w, block, out);
}

API RMA2_ERROR rma2_noti_lock_match(RMA2_Port e, uint32_t lock, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification **out)
{
	return match_lock(e, lock, node, vpid, false, out);
}

API RMA2_ERROR rma2_noti_lock_match_block(RMA2_Port e, uint32_t lock, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification **out)
{
	return match_lock(e, lock, node, vpid, true, out);
}

API RMA2_ERROR rma2_noti_free(RMA2_Port e, RMA2_Notification *n)
{
	struct entry *x = (struct entry *)n;
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	if (n == NULL || x->port != e)
		return RMA2_ERR_INV_VALUE;
	list_remove(x);
	entry_free(x);
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_noti_dup(RMA2_Notification *in, RMA2_Notification *out)
{
	*out = *in;
	return rma2_noti_free(((struct entry *)in)->port, in);
}

API uint32_t rma2_get_queue_size(RMA2_Port e)
{
	return (uint32_t)(e->entries_max * sizeof(RMA2_Notification));
}

API RMA2_ERROR rma2_set_queue_size(RMA2_Port e, uint32_t bytes)
{
	if (bytes < EXN_PAGE || bytes > RMA_QUEUE_MAX)
		return RMA2_ERR_INV_VALUE;
	e->entries_max = bytes / sizeof(RMA2_Notification);
	return RMA2_SUCCESS;
}

API uint32_t rma2_get_queue_segment_size(RMA2_Port e)
{
	return rma2_get_queue_size(e);
}

API RMA2_ERROR rma2_set_queue_segment_size(RMA2_Port e, uint32_t size)
{
	(void)e; // the queue is one piece, unlike the driver's
	return size >= EXN_PAGE ? RMA2_SUCCESS : RMA2_ERR_INV_VALUE;
}

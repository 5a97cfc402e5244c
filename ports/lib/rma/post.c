// post.c: operations. What the hardware refuses later, this library refuses at once, but reports
// in the same way: by an error notification.
#include "command.h"

static unsigned mode_of(const RMA2_Connection *c, const struct command *o)
{
	unsigned m = c->options & RMA2_CONN_TE ? RMA2_NOTI_TE : 0;
	m |= c->options & RMA2_CONN_RRA ? RMA2_NOTI_RRA : 0;
	m |= c->options & RMA2_CONN_IRQ ? RMA2_NOTI_IRQ : 0;
	m |= o->modifier & RMA2_CMD_NTR ? RMA2_NOTI_NTR : 0;
	m |= o->modifier & RMA2_CMD_EWA ? RMA2_NOTI_EWA : 0;
	return m | (o->modifier & RMA2_CMD_ERA ? RMA2_NOTI_ERA : 0);
}

static bool is_get(RMA2_Command kind)
{
	return kind == RMA2_BT_GET || kind == RMA2_QW_GET;
}

// last_packet makes n report a transfer as the unit does: by the address and size of its last
// packet (equations 5.1 and 5.2).
static RMA2_Notification last_packet(RMA2_Notification n, uint64_t start, uint32_t size)
{
	uint32_t last = size % RMA_MTU ? size % RMA_MTU : RMA_MTU;
	n.word0.value = start + size - last;
	n.word1.value |= last - 1;
	return n;
}

// fail reports a refused operation: by the completer's notification for a GET, else by the
// requester's.
static RMA2_ERROR fail(RMA2_Port e, const RMA2_Connection *c, const struct command *o, unsigned error)
{
	bool get = is_get(o->kind);
	RMA2_Notification n =
		rma_noti(c, get ? RMA2_COMPLETER_NOTIFICATION : RMA2_REQUESTER_NOTIFICATION, o->kind, mode_of(c, o));
	exn_count(&e->port, EXN_ERRORS, 1);
	if (o->kind != RMA2_NOTIFICATION_PUT && o->kind != RMA2_LOCK_REQ)
		n = last_packet(n, get ? o->write : o->kind == RMA2_IMMEDIATE_PUT ? 0 : o->read, o->size);
	return rma_note(e, rma_noti_error(n, error));
}

// tell_all writes a transfer's notifications to the peer: one, or one for each packet.
static void tell_all(RMA2_Port e, RMA2_Connection *c, const struct command *o, RMA2_Notification n, uint64_t start)
{
	if ((o->modifier & RMA2_CMD_NTR) == 0) {
		rma_tell(e, c, last_packet(n, start, o->size), o->size);
		return;
	}
	for (uint32_t off = 0; off < o->size; off += RMA_MTU) {
		uint32_t size = o->size - off < RMA_MTU ? o->size - off : RMA_MTU;
		if (off > 0 && rma_room(e, c) != RMA2_SUCCESS)
			return; // it has ended
		rma_tell(e, c, last_packet(n, start + off, size), o->size);
	}
}

// note_all is tell_all for this port's own queue.
static RMA2_ERROR note_all(RMA2_Port e, const struct command *o, RMA2_Notification n, uint64_t start)
{
	uint32_t step = o->modifier & RMA2_CMD_NTR ? RMA_MTU : o->size;
	RMA2_ERROR err = RMA2_SUCCESS;
	for (uint32_t off = 0; off < o->size && err == RMA2_SUCCESS; off += step) {
		uint32_t size = o->size - off < step ? o->size - off : step;
		err = rma_note(e, last_packet(n, start + off, size));
	}
	return err;
}

static RMA2_ERROR registers(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	bool get = is_get(o->kind), immediate = o->kind == RMA2_IMMEDIATE_PUT;
	uint64_t value = o->read, *words = &value;
	uint32_t run = o->size;
	if (!immediate)
		words = rma_local(e, get ? o->write : o->read, o->size, &run);
	uint64_t addr = get ? o->read : o->write;
	if (words == NULL || run < o->size || (uintptr_t)words % 8 != 0 || o->size % 8 != 0)
		return fail(e, c, o, RMA2_ERROR_REQ);
	if (!rma_registers(e, c, addr, words, o->size / 8, !get))
		return fail(e, c, o, get ? RMA2_ERROR_RESP : RMA2_ERROR_CMPL);
	RMA2_Notification n = rma_noti(c, RMA2_REQUESTER_NOTIFICATION, o->kind, mode_of(c, o));
	RMA2_ERROR err = RMA2_SUCCESS;
	if (o->spec & RMA2_REQUESTER_NOTIFICATION)
		err = rma_note(e, last_packet(n, immediate ? 0 : o->read, o->size));
	if (get && o->spec & RMA2_COMPLETER_NOTIFICATION && err == RMA2_SUCCESS)
		err = rma_note(e, last_packet(rma_noti(c, RMA2_COMPLETER_NOTIFICATION, RMA2_GET_BT_RSP + (o->kind & 1), mode_of(c, o)),
					      o->write, o->size));
	return err;
}

static RMA2_ERROR put(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	bool immediate = o->kind == RMA2_IMMEDIATE_PUT;
	if (!immediate && !rma_present(e, o->read, o->size))
		return fail(e, c, o, RMA2_ERROR_REQ);
	if (exn_gone(c->grant) || !rma_reachable(c->grant, o->write, o->size, true))
		return fail(e, c, o, RMA2_ERROR_CMPL);
	if (o->spec & RMA2_COMPLETER_NOTIFICATION && rma_room(e, c) != RMA2_SUCCESS)
		return fail(e, c, o, RMA2_ERROR_CMPL);
	if (!(immediate ? rma_store(e, c->grant, o) : rma_move(e, c->grant, o->read, o->write, o->size, true)))
		return fail(e, c, o, RMA2_ERROR_CMPL);
	exn_count(&e->port, EXN_PUT_BYTES, o->size);
	unsigned mode = mode_of(c, o);
	if (o->spec & RMA2_COMPLETER_NOTIFICATION)
		tell_all(e, c, o, rma_noti(c, RMA2_COMPLETER_NOTIFICATION, o->kind, mode), o->write);
	if (o->spec & RMA2_REQUESTER_NOTIFICATION)
		return note_all(e, o, rma_noti(c, RMA2_REQUESTER_NOTIFICATION, o->kind, mode), immediate ? 0 : o->read);
	return RMA2_SUCCESS;
}

static RMA2_ERROR get(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	if (!rma_present(e, o->write, o->size))
		return fail(e, c, o, RMA2_ERROR_REQ);
	if (exn_gone(c->grant) || !rma_reachable(c->grant, o->read, o->size, false))
		return fail(e, c, o, RMA2_ERROR_RESP);
	if (o->spec & RMA2_RESPONDER_NOTIFICATION && rma_room(e, c) != RMA2_SUCCESS)
		return fail(e, c, o, RMA2_ERROR_RESP);
	if (!rma_move(e, c->grant, o->write, o->read, o->size, false))
		return fail(e, c, o, RMA2_ERROR_RESP);
	exn_count(&e->port, EXN_GET_BYTES, o->size);
	unsigned mode = mode_of(c, o), response = RMA2_GET_BT_RSP + (o->kind & 1);
	if (o->spec & RMA2_RESPONDER_NOTIFICATION)
		tell_all(e, c, o, rma_noti(c, RMA2_RESPONDER_NOTIFICATION, o->kind, mode), o->read);
	RMA2_ERROR err = RMA2_SUCCESS;
	if (o->spec & RMA2_REQUESTER_NOTIFICATION)
		err = rma_note(e, last_packet(rma_noti(c, RMA2_REQUESTER_NOTIFICATION, o->kind, mode), o->write, o->size));
	if (o->spec & RMA2_COMPLETER_NOTIFICATION && err == RMA2_SUCCESS)
		err = note_all(e, o, rma_noti(c, RMA2_COMPLETER_NOTIFICATION, response, mode), o->write);
	return err;
}

static RMA2_ERROR notify(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	RMA2_Notification n = rma_noti(c, 0, o->kind, mode_of(c, o));
	n.word0.value = o->read;
	n.word1.value |= o->size; // the class
	if (o->spec & RMA2_COMPLETER_NOTIFICATION) {
		if (exn_gone(c->grant) || rma_room(e, c) != RMA2_SUCCESS)
			return fail(e, c, o, RMA2_ERROR_CMPL);
		RMA2_Notification theirs = n;
		theirs.word1.value |= (uint64_t)RMA2_COMPLETER_NOTIFICATION << 48;
		rma_tell(e, c, theirs, 0);
	}
	if ((o->spec & RMA2_REQUESTER_NOTIFICATION) == 0)
		return RMA2_SUCCESS;
	n.word1.value |= (uint64_t)RMA2_REQUESTER_NOTIFICATION << 48;
	return rma_note(e, n);
}

// lock does a fetch-compare-and-add. o->read is the lock's number, o->write holds compare and
// add.
static RMA2_ERROR lock(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	int32_t compare = (int32_t)(o->write >> 32), add = (int32_t)o->write;
	if (o->read >= EXN_LOCKS || exn_gone(c->grant))
		return fail(e, c, o, RMA2_ERROR_RESP);
	if (o->spec & RMA2_RESPONDER_NOTIFICATION && rma_room(e, c) != RMA2_SUCCESS)
		return fail(e, c, o, RMA2_ERROR_RESP);
	int32_t *at = (int32_t *)c->grant->memory + o->read;
	int32_t value = __atomic_load_n(at, __ATOMIC_ACQUIRE), now = value;
	bool done = false;
	while (!done && value <= compare) {
		now = (int32_t)((uint32_t)value + (uint32_t)add);
		done = __atomic_compare_exchange_n(at, &value, now, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	}
	if (!done)
		now = value;
	unsigned mode = mode_of(c, o);
	uint64_t result = o->read | (uint64_t)done << 24 | (uint64_t)(uint32_t)now << 32;
	RMA2_ERROR err = RMA2_SUCCESS;
	if (o->spec & RMA2_REQUESTER_NOTIFICATION) {
		RMA2_Notification n = rma_noti(c, RMA2_REQUESTER_NOTIFICATION, RMA2_LOCK_REQ, mode);
		n.word0.value = o->read | (uint64_t)(uint32_t)compare << 32;
		err = rma_note(e, n);
	}
	if (o->spec & RMA2_RESPONDER_NOTIFICATION) {
		RMA2_Notification n = rma_noti(c, RMA2_RESPONDER_NOTIFICATION, RMA2_LOCK_REQ, mode);
		n.word0.value = result;
		rma_tell(e, c, n, 0);
	}
	if (o->spec & RMA2_COMPLETER_NOTIFICATION && err == RMA2_SUCCESS) {
		RMA2_Notification n = rma_noti(c, RMA2_COMPLETER_NOTIFICATION, RMA2_LOCK_RSP, mode);
		n.word0.value = result;
		err = rma_note(e, n);
	}
	return err;
}

// unknown refuses an invalid command: the requester reports it and, if it was to notify, the
// completer.
static RMA2_ERROR unknown(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	if (o->spec & RMA2_COMPLETER_NOTIFICATION && rma_room(e, c) == RMA2_SUCCESS)
		rma_tell(e, c, rma_noti_error(rma_noti(c, RMA2_COMPLETER_NOTIFICATION, o->kind, mode_of(c, o)), RMA2_ERROR_CMPL), 0);
	return fail(e, c, o, RMA2_ERROR_REQ);
}

// own_notifications returns how many notifications an operation may write to this port's own
// queue.
static size_t own_notifications(const struct command *o)
{
	return 2 + (o->modifier & RMA2_CMD_NTR ? o->size / RMA_MTU + 1 : 0);
}

// far sends an operation to the node, which does it on a port of another host (SPEC.md 6) and
// writes the notifications.
static RMA2_ERROR far(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	if (exn_gone(c->grant) || rma_room(e, c) != RMA2_SUCCESS)
		return fail(e, c, o, is_get(o->kind) ? RMA2_ERROR_RESP : RMA2_ERROR_CMPL);
	uint64_t *slot = (uint64_t *)exn_flow_slot(&c->grant->out), bytes = o->kind == RMA2_NOTIFICATION_PUT ? 0 : o->size;
	slot[1] = o->read;
	slot[2] = o->write;
	exn_count(&e->port, is_get(o->kind) ? EXN_GET_BYTES : EXN_PUT_BYTES, (int64_t)bytes);
	exn_port_commit(&e->port, c->grant,
			16 | (uint64_t)o->size << 8 | (uint64_t)o->kind << 32 | (o->spec & 7ull) << 36 | (o->modifier & 15ull) << 39 |
				(uint64_t)mode_of(c, o) << 43);
	return RMA2_SUCCESS;
}

// perform does an operation between two ports.
static RMA2_ERROR perform(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	if (c->grant->far)
		return far(e, c, o);
	switch (o->kind) {
	case RMA2_BT_PUT:
	case RMA2_QW_PUT:
	case RMA2_IMMEDIATE_PUT:
		return put(e, c, o);
	case RMA2_BT_GET:
	case RMA2_QW_GET:
		return get(e, c, o);
	case RMA2_NOTIFICATION_PUT:
		return notify(e, c, o);
	case RMA2_LOCK_REQ:
		return lock(e, c, o);
	default:
		return unknown(e, c, o);
	}
}

// multicast does a PUT to each member of the group that c names as its node. It leaves out
// members that have not opened the VPID. The requester gets one notification for all.
static RMA2_ERROR multicast(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	struct exn_group *g;
	struct command each = *o;
	RMA2_ERROR err = RMA2_SUCCESS;
	bool notification = o->kind == RMA2_NOTIFICATION_PUT;
	bool is_put = o->kind == RMA2_BT_PUT || o->kind == RMA2_QW_PUT || o->kind == RMA2_IMMEDIATE_PUT || notification;
	if (!is_put || c->options & RMA2_CONN_RRA)
		return fail(e, c, o, RMA2_ERROR_REQ);
	if (exn_port_group(&e->port, c->node, c->vpid, false, &g) != EXN_OK)
		return fail(e, c, o, RMA2_ERROR_REQ);
	each.spec &= ~(unsigned)RMA2_REQUESTER_NOTIFICATION;
	for (unsigned i = 0; i < g->count && err == RMA2_SUCCESS; i++) {
		struct exn_grant *m = g->members[i];
		RMA2_Connection to = {.grant = m, .node = m->node, .vpid = m->vpid, .options = c->options};
		if (!exn_gone(m))
			err = perform(e, &to, &each);
	}
	if (err != RMA2_SUCCESS || (o->spec & RMA2_REQUESTER_NOTIFICATION) == 0)
		return err;
	RMA2_Notification n = rma_noti(c, RMA2_REQUESTER_NOTIFICATION, o->kind, mode_of(c, o));
	if (!notification)
		return note_all(e, o, n, o->kind == RMA2_IMMEDIATE_PUT ? 0 : o->read);
	n.word0.value = o->read;
	n.word1.value |= o->size;
	return rma_note(e, n);
}

RMA2_ERROR rma_execute(RMA2_Port e, RMA2_Connection *c, const struct command *o)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	if (c == NULL)
		return RMA2_ERR_INV_HANDLE;
	if (exn_dead(&e->port))
		return RMA2_ERR_ERROR;
	if (e->entries + own_notifications(o) > e->entries_max)
		return RMA2_ERR_NO_DESC_MEM;
	bool transfer = o->kind <= RMA2_QW_PUT || o->kind == RMA2_IMMEDIATE_PUT;
	if (transfer && (o->size < 1 || o->size > (o->kind == RMA2_IMMEDIATE_PUT ? 8 : RMA_MAX_TRANSFER)))
		return RMA2_ERR_INV_VALUE;
	if ((o->kind == RMA2_QW_PUT || o->kind == RMA2_QW_GET) && (o->size | o->read | o->write) % 8 != 0)
		return RMA2_ERR_INV_VALUE;
	// exnet has no Excellerate unit and no physical memory.
	if (o->modifier & (RMA2_CMD_ERA | RMA2_CMD_EWA))
		return fail(e, c, o, RMA2_ERROR_REQ);
	if (o->modifier & RMA2_CMD_MC)
		return multicast(e, c, o);
	if (transfer && c->options & RMA2_CONN_RRA)
		return registers(e, c, o);
	if (c->grant == NULL)
		return fail(e, c, o, RMA2_ERROR_REQ);
	return perform(e, c, o);
}

// address returns the address of a byte of a region. The program may have changed the region's
// own address.
static RMA2_NLA address(const RMA2_Region *r, uint32_t offset)
{
	return r->nla + r->offset + offset;
}

#define TRANSFER(name, kind_of, from, to)                                                                        \
	API RMA2_ERROR rma2_post_##name(RMA2_Port e, RMA2_Handle c, RMA2_Region *r, uint32_t offset, uint32_t size,  \
					RMA2_NLA nla, RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier)   \
	{                                                                                                            \
		if (r == NULL)                                                                                       \
			return RMA2_ERR_WRONG_ARG;                                                                   \
		RMA2_NLA local = address(r, offset);                                                                 \
		return rma_execute(e, c, &(struct command){kind_of, spec, modifier, size, from, to});                    \
	}                                                                                                            \
	API RMA2_ERROR rma2_post_##name##_direct(RMA2_Port e, RMA2_Handle c, RMA2_NLA local, uint32_t size,          \
						 RMA2_NLA nla, RMA2_Notification_Spec spec,                          \
						 RMA2_Command_Modifier modifier)                                     \
	{                                                                                                            \
		return rma_execute(e, c, &(struct command){kind_of, spec, modifier, size, from, to});                    \
	}

TRANSFER(put_bt, RMA2_BT_PUT, local, nla)
TRANSFER(put_qw, RMA2_QW_PUT, local, nla)
TRANSFER(get_bt, RMA2_BT_GET, nla, local)
TRANSFER(get_qw, RMA2_QW_GET, nla, local)

API RMA2_ERROR rma2_post_immediate_put(RMA2_Port e, RMA2_Handle c, uint32_t count, uint64_t value, RMA2_NLA dest,
				       RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier)
{
	return rma_execute(e, c, &(struct command){RMA2_IMMEDIATE_PUT, spec, modifier, count, value, dest});
}

API RMA2_ERROR rma2_post_notification(RMA2_Port e, RMA2_Handle c, RMA2_Class class, uint64_t value,
				      RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier)
{
	return rma_execute(e, c, &(struct command){RMA2_NOTIFICATION_PUT, spec, modifier, class, value, 0});
}

API RMA2_ERROR rma2_post_lock(RMA2_Port e, RMA2_Handle c, uint32_t target, uint32_t number, int32_t compare, int32_t add,
			      RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier)
{
	if (target > 1)
		return RMA2_ERR_INV_VALUE;
	uint64_t values = (uint64_t)(uint32_t)compare << 32 | (uint32_t)add;
	return rma_execute(e, c, &(struct command){RMA2_LOCK_REQ, spec, modifier, 0, number, values});
}

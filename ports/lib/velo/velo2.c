// velo2.c: libvelo2, on a port's flows.
#include "velo2.h"

#include <stdlib.h>

#include "../core/port.h"

#define API __attribute__((visibility("default")))

// The status word of a message: its length in bits 0 to 6, the tag in 8 to 15, the type in 16
// to 19, and in 20 whether it was sent to a group.
#define TO_GROUP (1ull << 20)

struct message {
	uint64_t word;
	uint32_t source;
	uint8_t data[EXN_SLOT_MAX];
};

// box is an open mailbox. It keeps messages that arrive while a send waits, as the peer may wait
// for this port, too.
struct box {
	struct exn_port port;
	struct message *kept;
	size_t kept_first, kept_count, kept_room;
	uint32_t *ended; // peers whose end VELO2_RET_EOF has yet to report
	size_t ended_count, ended_room;
};

enum {
	KEPT_MAX = 65536, // messages kept while a send waits
	ENDED_MAX = 4096, // ends of peers that wait to be reported; further ones are not
	ABANDONED_MAX = 128, // slots without a message that one look for a message passes
};

// grow makes room for one more item in a list of count items of size bytes. It returns false
// without memory.
static bool grow(void **list, size_t *room, size_t count, size_t size)
{
	if (count < *room)
		return true;
	size_t more = *room ? 2 * *room : 16;
	void *now = realloc(*list, more * size);
	if (now == NULL)
		return false;
	*list = now;
	*room = more;
	return true;
}

static void peer_gone(struct exn_port *p, uint16_t node, uint16_t vpid)
{
	struct box *b = p->owner;
	// A program that only polls reports none.
	for (size_t i = 0; i < b->ended_count; i++)
		if (b->ended[i] == VELO2_ADDR_PACK(node, vpid))
			return;
	if (b->ended_count < ENDED_MAX && grow((void **)&b->ended, &b->ended_room, b->ended_count, sizeof(*b->ended)))
		b->ended[b->ended_count++] = VELO2_ADDR_PACK(node, vpid);
}

static velo2_ret_t result(enum exn_status s)
{
	switch (s) {
	case EXN_OK:
		return VELO2_RET_SUCCESS;
	case EXN_NO_PORT:
	case EXN_DENIED:
		return VELO2_RET_INVALID_MBOX;
	case EXN_NO_NODE:
		return VELO2_RET_INVALID_NODE;
	case EXN_NO_MEMORY:
		return VELO2_RET_ERR_MMAP;
	case EXN_NO_DAEMON:
	case EXN_FULL:
	case EXN_IN_USE:
	case EXN_BAD_VERSION:
		return VELO2_RET_ERR_FDOPEN;
	default:
		return VELO2_RET_ERROR;
	}
}

API velo2_ret_t velo2_open(velo2_port_t *port)
{
	return velo2_open_vpid(port, 0);
}

API velo2_ret_t velo2_open_vpid(velo2_port_t *port, velo2_vpid_t vpid)
{
	port->map = NULL;
	if (vpid > UINT16_MAX)
		return VELO2_RET_INVALID_MBOX;
	struct box *b = calloc(1, sizeof(*b));
	if (b == NULL)
		return VELO2_RET_ERR_MMAP;
	enum exn_status s = exn_port_open(&b->port, EXN_VELO, (uint16_t)vpid);
	if (s != EXN_OK) {
		free(b);
		return result(s);
	}
	b->port.owner = b;
	b->port.gone = peer_gone;
	port->map = b;
	return VELO2_RET_SUCCESS;
}

API velo2_ret_t velo2_close(velo2_port_t *port)
{
	struct box *b = port->map;
	if (b == NULL)
		return VELO2_RET_ERROR;
	exn_port_close(&b->port);
	free(b->kept);
	free(b->ended);
	free(b);
	port->map = NULL;
	return VELO2_RET_SUCCESS;
}

API velo2_nodeid_t velo2_get_nodeid(velo2_port_t *port)
{
	return ((struct box *)port->map)->port.node;
}

API velo2_vpid_t velo2_get_vpid(velo2_port_t *port)
{
	return ((struct box *)port->map)->port.vpid;
}

API velo2_ret_t velo2_connect(velo2_port_t *port, velo2_connection_t *con, velo2_nodeid_t node, velo2_vpid_t vpid)
{
	struct box *b = port->map;
	struct exn_grant *g;
	struct exn_group *group;
	bool multicast = (node & VELO2_MULTICAST) != 0;
	node &= ~(velo2_nodeid_t)VELO2_MULTICAST;
	if (node > UINT16_MAX)
		return VELO2_RET_INVALID_NODE;
	if (vpid > UINT8_MAX)
		return VELO2_RET_INVALID_MBOX;
	enum exn_status s = multicast ? exn_port_group(&b->port, (uint16_t)node, (uint16_t)vpid, true, &group)
				      : exn_port_connect(&b->port, (uint16_t)node, (uint16_t)vpid, &g);
	if (s == EXN_INVALID && multicast)
		return VELO2_RET_INVALID_NODE;
	if (s != EXN_OK)
		return result(s);
	if (!multicast)
		g->handles++;
	con->dest.raw = VELO2_ADDR_PACK(node, vpid) | (multicast ? VELO2_MULTICAST : 0);
	con->state_map = multicast ? NULL : g;
	con->port = port;
	return VELO2_RET_SUCCESS;
}

API velo2_ret_t velo2_disconnect(velo2_port_t *port, velo2_connection_t *con)
{
	struct box *b = port->map;
	// It may be of the port before this one, whose grants have gone.
	struct exn_grant *g = b != NULL ? b->port.grants : NULL;
	while (g != NULL && g != con->state_map)
		g = g->next;
	if (g != NULL && g->handles > 0)
		g->handles--;
	con->dest.raw = 0;
	con->state_map = NULL;
	return VELO2_RET_SUCCESS;
}

// take takes a message from the flows. It returns false if there is none.
static bool take(struct box *b, struct message *m)
{
	uint16_t node, vpid;
	// Of slots that their senders have abandoned it passes some only: a peer may write such all
	// the time.
	for (int i = 0; i < ABANDONED_MAX; i++) {
		if (!exn_port_take(&b->port, m->data, &m->word, &node, &vpid))
			return false;
		m->source = VELO2_ADDR_PACK(node, vpid);
		if ((m->word & 0x7f) != 0)
			return true;
	}
	return false;
}

// keep moves arrived messages to memory, so that the peers have room.
static void keep(struct box *b)
{
	if (b->kept_first > 0) {
		memmove(b->kept, b->kept + b->kept_first, b->kept_count * sizeof(*b->kept));
		b->kept_first = 0;
	}
	while (b->kept_count < KEPT_MAX) {
		if (!grow((void **)&b->kept, &b->kept_room, b->kept_count, sizeof(*b->kept)))
			return;
		if (!take(b, &b->kept[b->kept_count]))
			return;
		b->kept_count++;
	}
}

// room checks that a peer has a free slot or, with wait, waits until it has one.
static velo2_ret_t room(struct box *b, struct exn_grant *g, bool wait)
{
	unsigned round = 0;
	while (!exn_flow_room(&g->out)) {
		if (!wait)
			return exn_gone(g) ? VELO2_RET_ERROR : VELO2_RET_TRY_AGAIN;
		keep(b);
		if (!exn_port_wait(&b->port, g, &round))
			return VELO2_RET_ERROR;
	}
	return exn_gone(g) ? VELO2_RET_ERROR : VELO2_RET_SUCCESS;
}

static void post(struct box *b, struct exn_grant *g, const void *msg, unsigned len, uint64_t word)
{
	memcpy(exn_flow_slot(&g->out) + 8, msg, len);
	exn_port_commit(&b->port, g, len | word);
}

// post_group sends to all members of a group, or to none if one is full. It leaves out members
// that have ended.
static velo2_ret_t post_group(struct box *b, uint32_t to, const void *msg, unsigned len, uint64_t word, bool wait)
{
	struct exn_group *g;
	enum exn_status s = exn_port_group(&b->port, (uint16_t)VELO2_ADDR_NODE(to), (uint16_t)VELO2_ADDR_VPID(to), false, &g);
	if (s != EXN_OK)
		return result(s);
	for (unsigned i = 0; i < g->count; i++)
		if (room(b, g->members[i], wait) == VELO2_RET_TRY_AGAIN)
			return VELO2_RET_TRY_AGAIN;
	for (unsigned i = 0; i < g->count; i++)
		if (!exn_gone(g->members[i]) && exn_flow_room(&g->members[i]->out))
			post(b, g->members[i], msg, len, word | TO_GROUP);
	return exn_dead(&b->port) ? VELO2_RET_ERROR : VELO2_RET_SUCCESS;
}

static velo2_ret_t send(velo2_connection_t *con, const void *msg, unsigned len, uint8_t tag, uint8_t mtt, bool wait)
{
	struct exn_grant *g = con->state_map;
	bool multicast = (con->dest.raw & VELO2_MULTICAST) != 0;
	if ((g == NULL && !multicast) || con->port->map == NULL)
		return VELO2_RET_ERROR;
	if (len < 1 || len > VELO2_MAX_PAYLOAD)
		return VELO2_RET_INV_MSG;
	if (mtt > 15)
		return VELO2_RET_INV_MTT;
	struct box *b = con->port->map;
	uint64_t word = (uint64_t)tag << 8 | (uint64_t)mtt << 16;
	if (multicast)
		return post_group(b, con->dest.raw, msg, len, word, wait);
	velo2_ret_t r = room(b, g, wait);
	if (r == VELO2_RET_SUCCESS)
		post(b, g, msg, len, word);
	return r;
}

API velo2_ret_t velo2_send(velo2_connection_t *con, const void *msg, unsigned len, uint8_t tag, uint8_t mtt)
{
	return send(con, msg, len, tag, mtt, true);
}

API velo2_ret_t velo2_try_send(velo2_connection_t *con, const void *msg, unsigned len, uint8_t tag, uint8_t mtt)
{
	return send(con, msg, len, tag, mtt, false);
}

// next takes the oldest message: kept messages came first.
static bool next(struct box *b, struct message *m)
{
	if (b->kept_count == 0)
		return take(b, m);
	*m = b->kept[b->kept_first++];
	if (--b->kept_count == 0)
		b->kept_first = 0;
	return true;
}

API velo2_ret_t velo2_probe_recv(velo2_port_t *port, void *buf, unsigned size, uint32_t *len, uint32_t *source, uint8_t *tag,
				 uint8_t *mtt)
{
	struct box *b = port->map;
	struct message m;
	if (!next(b, &m))
		return exn_dead(&b->port) ? VELO2_RET_ERROR : VELO2_RET_NO_MSG;
	unsigned n = m.word & 0x7f;
	if (source != NULL)
		*source = m.source;
	if (tag != NULL)
		*tag = (uint8_t)(m.word >> 8);
	if (mtt != NULL)
		*mtt = m.word >> 16 & 15;
	if (len != NULL)
		*len = n;
	if (n < 1 || n > VELO2_MAX_PAYLOAD || n > size) {
		exn_count(&b->port, EXN_ERRORS, 1);
		return VELO2_RET_INV_MSG;
	}
	memcpy(buf, m.data, n);
	exn_count(&b->port, EXN_RECEIVED, 1);
	return VELO2_RET_SUCCESS;
}

API velo2_ret_t velo2_recv(velo2_port_t *port, void *buf, unsigned size, uint32_t *len, uint32_t *source, uint8_t *tag,
			   uint8_t *mtt)
{
	struct box *b = port->map;
	for (;;) {
		velo2_ret_t r = velo2_probe_recv(port, buf, size, len, source, tag, mtt);
		if (r != VELO2_RET_NO_MSG)
			return r;
		if (b->ended_count > 0) {
			uint32_t who = b->ended[--b->ended_count];
			if (source != NULL)
				*source = who;
			return VELO2_RET_EOF;
		}
		exn_port_sleep(&b->port);
	}
}

API velo2_ret_t velo2_probe(velo2_port_t *port)
{
	struct box *b = port->map;
	if (b->kept_count == 0)
		keep(b);
	return b->kept_count > 0 ? VELO2_RET_SUCCESS : VELO2_RET_NO_MSG;
}

API void velo2_descriptors(velo2_port_t *port, int fds[2])
{
	struct box *b = port->map;
	fds[0] = b->port.bell;
	fds[1] = b->port.sock;
}

API int velo2_arm(velo2_port_t *port)
{
	struct box *b = port->map;
	return b->kept_count == 0 && b->ended_count == 0 && exn_port_arm(&b->port);
}

API int velo2_ended(velo2_port_t *port, uint32_t *source)
{
	struct box *b = port->map;
	if (b->ended_count == 0)
		return 0;
	*source = b->ended[--b->ended_count];
	return 1;
}

API int velo2_has_room(velo2_connection_t *con)
{
	struct exn_grant *g = con->state_map;
	return g != NULL && !exn_gone(g) && exn_flow_room(&g->out);
}

API const char *velo2_strerror(velo2_ret_t ret)
{
	static const char *const text[] = {
		[VELO2_RET_SUCCESS] = "success",
		[VELO2_RET_INV_MSG] = "the message is empty, longer than 120 bytes, or longer than the buffer",
		[VELO2_RET_ERROR] = "the node or the peer has ended",
		[VELO2_RET_NO_MSG] = "nothing has arrived",
		[VELO2_RET_NO_MATCH] = "nothing from that source has arrived",
		[VELO2_RET_ERR_FDOPEN] = "no node runs here (start exn-tun), or it has no port left",
		[VELO2_RET_ERR_MMAP] = "no memory",
		[VELO2_RET_INVALID_MBOX] = "the mailbox is not open, or belongs to another user",
		[VELO2_RET_INVALID_NODE] = "there is no such node",
		[VELO2_RET_TRY_AGAIN] = "the mailbox is full",
		[VELO2_RET_INV_MTT] = "the message type is above 15",
		[VELO2_RET_EOF] = "the peer has ended",
	};
	unsigned n = (unsigned)ret;
	return n < sizeof(text) / sizeof(*text) && text[n] != NULL ? text[n] : "unknown result";
}

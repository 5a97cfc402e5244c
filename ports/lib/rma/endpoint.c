// endpoint.c: ports and connections of librma2.
#include <stdlib.h>

#include "rma.h"

API const RMA2_Class RMA2_CLASS_ANY = 0xff;
API const RMA2_Nodeid RMA2_NODEID_ANY = 0xffff;
API const RMA2_VPID RMA2_VPID_ANY = 0xffff;
API const uint32_t RMA2_LOCK_ANY = 0xffffffff;
API const RMA2_NLA RMA2_ANY_NLA = ~0ull;
API const uint32_t RMA2_DEFAULT_FLAG = 0;
API const uint32_t RMA2_BLOCK_FLAG = 1;
API const uint32_t RMA2_MATCH_LAST_NLA_FLAG = 2;

static RMA2_ERROR result(enum exn_status s)
{
	switch (s) {
	case EXN_OK:
		return RMA2_SUCCESS;
	case EXN_BAD_VERSION:
		return RMA2_ERR_INVALID_VERSION;
	case EXN_NO_PORT:
	case EXN_DENIED:
		return RMA2_ERR_NO_CONNECT;
	case EXN_FULL:
	case EXN_IN_USE:
		return RMA2_ERR_PORTS_USED;
	case EXN_NO_NODE:
		return RMA2_ERR_NO_ROUTE;
	case EXN_NO_DAEMON:
		return RMA2_ERR_NO_DEVICE;
	case EXN_NO_MEMORY:
		return RMA2_ERR_MMAP;
	default:
		return RMA2_ERR_ERROR;
	}
}

API RMA2_ERROR rma2_open(RMA2_Port *port)
{
	return rma2_open_vpid(port, 0);
}

API RMA2_ERROR rma2_open_vpid(RMA2_Port *port, RMA2_VPID vpid)
{
	struct rma2_endpoint *e = calloc(1, sizeof(*e));
	if (e == NULL)
		return RMA2_ERR_MAP;
	enum exn_status s = exn_port_open(&e->port, EXN_RMA, vpid);
	if (s != EXN_OK) {
		free(e);
		return result(s);
	}
	e->port.owner = e;
	e->port.gone = rma_peer_gone;
	e->replay = RMA2_REPLAY_ALL;
	rma_queue_init(e);
	if (!rma_memory_init(e)) {
		rma2_close(e);
		return RMA2_ERR_MAP;
	}
	*port = e;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_close(RMA2_Port e)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	exn_port_close(&e->port);
	rma_memory_free(e);
	rma_queue_free(e);
	while (e->connections != NULL) {
		RMA2_Connection *c = e->connections;
		e->connections = c->next;
		free(c);
	}
	while (e->descriptors != NULL) {
		RMA2_Descriptor *d = e->descriptors;
		e->descriptors = d->next;
		free(d);
	}
	free(e);
	return RMA2_SUCCESS;
}

// is_group returns whether the multicast group exists and has members. Otherwise operations with
// RMA2_CMD_MC are refused.
static bool is_group(RMA2_Port e, RMA2_Nodeid number, RMA2_VPID vpid)
{
	struct exn_group *g;
	return exn_port_group(&e->port, number, vpid, true, &g) == EXN_OK && g->nodes > 0;
}

API RMA2_ERROR rma2_connect(RMA2_Port e, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Connection_Options options, RMA2_Handle *handle)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	RMA2_Connection *c = calloc(1, sizeof(*c));
	if (c == NULL)
		return RMA2_ERR_MAP;
	*c = (RMA2_Connection){.node = node, .vpid = vpid, .options = options};
	// Registers and physical memory belong to the node: there is no port to connect to.
	if ((options & RMA2_CONN_RRA) == 0 && (options & RMA2_CONN_TE) != 0) {
		enum exn_status s = exn_port_connect(&e->port, node, vpid, &c->grant);
		if (s != EXN_OK && !is_group(e, node, vpid)) {
			free(c);
			return result(s);
		}
		if (c->grant != NULL)
			c->grant->handles++;
	}
	c->next = e->connections;
	e->connections = c;
	*handle = c;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_disconnect(RMA2_Port e, RMA2_Handle handle)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	for (RMA2_Connection **at = &e->connections; *at != NULL; at = &(*at)->next)
		if (*at == handle) {
			*at = handle->next;
			if (handle->grant != NULL)
				handle->grant->handles--;
			free(handle);
			return RMA2_SUCCESS;
		}
	return RMA2_ERR_INV_HANDLE;
}

API RMA2_Nodeid rma2_handle_get_node(RMA2_Handle c)
{
	return c->node;
}

API RMA2_VPID rma2_handle_get_vpid(RMA2_Handle c)
{
	return c->vpid;
}

API RMA2_Nodeid rma2_get_nodeid(RMA2_Port e)
{
	return e->port.node;
}

API RMA2_VPID rma2_get_vpid(RMA2_Port e)
{
	return e->port.vpid;
}

API RMA2_Nodeid rma2_get_node_num(RMA2_Port e)
{
	(void)e;
	return UINT16_MAX;
}

API RMA2_VPID rma2_get_proc_num(RMA2_Port e)
{
	(void)e;
	return 256;
}

API RMA2_ERROR rma2_set_protectionid(RMA2_Port e, uint16_t id)
{
	struct exn_msg m = {.op = EXN_PROTECT, .a = id};
	int fds[EXN_FDS];
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	return result(exn_port_ask(&e->port, &m, fds));
}

static RMA2_ERROR set_option(RMA2_Port e, RMA2_Handle c, unsigned option)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	if (c == NULL)
		return RMA2_ERR_INV_HANDLE;
	c->options |= option;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_request_interrupt(RMA2_Port e, RMA2_Handle c)
{
	return set_option(e, c, RMA2_CONN_IRQ);
}

API uint32_t rma2_get_interrupt(RMA2_Port e, RMA2_Handle c)
{
	(void)e;
	return (c->options & RMA2_CONN_IRQ) != 0;
}

API RMA2_ERROR rma2_request_rra(RMA2_Port e, RMA2_Handle c)
{
	return set_option(e, c, RMA2_CONN_RRA);
}

API uint32_t rma2_get_rra(RMA2_Port e, RMA2_Handle c)
{
	(void)e;
	return (c->options & RMA2_CONN_RRA) != 0;
}

API RMA2_ERROR rma2_request_physical_access(RMA2_Port e, RMA2_Handle c)
{
	(void)e;
	(void)c;
	return RMA2_ERR_NOT_YET;
}

API uint32_t rma2_get_physical_access(RMA2_Port e, RMA2_Handle c)
{
	(void)e;
	return (c->options & RMA2_CONN_TE) == 0;
}

// The traffic classes are stored but have no effect: memory has only one.
API RMA2_ERROR rma2_request_tcs(RMA2_Port e, RMA2_Handle c, uint32_t request, uint32_t response)
{
	if (request > 3 || response > 3)
		return RMA2_ERR_INV_VALUE;
	return set_option(e, c, request);
}

API RMA2_ERROR rma2_get_tcs(RMA2_Port e, RMA2_Handle c, uint32_t *request, uint32_t *response)
{
	(void)e;
	*request = *response = c->options & 3;
	return RMA2_SUCCESS;
}

API void rma2_replay_buffer_drain(RMA2_Port e)
{
	(void)e;
}

API void rma2_set_replay_mode(RMA2_Port e, RMA2_Replay_Buffer_Mode mode)
{
	e->replay = mode;
}

API RMA2_Replay_Buffer_Mode rma2_get_replay_buffer_mode(RMA2_Port e)
{
	return e->replay;
}

bool rma_registers(RMA2_Port e, RMA2_Connection *c, RMA2_NLA addr, uint64_t *words, uint32_t count, bool write)
{
	for (uint32_t i = 0; i < count; i++) {
		struct exn_msg m = {.op = EXN_REGISTER, .node = c->node, .a = addr + 8ull * i, .b = words[i], .c = write};
		int fds[EXN_FDS];
		if (exn_port_ask(&e->port, &m, fds) != EXN_OK)
			return false;
		words[i] = m.b;
	}
	return true;
}

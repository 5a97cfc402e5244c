// peers.c: programs for the tests of processes that end, or lie. They need a node (EXN_PORTS).
//
//	peers serve [N]     prints "NODE RMA-VPID ADDRESS VELO-VPID", and reads what comes until N
//	                    peers have ended (1)
//	peers hammer ...    connects to those, says so, and sends until the peer has ended
//	peers lie SEED ...  connects to those, and writes anything to all that it was granted
//	peers ask NODE RMA-VPID  connects to that one, and to a node that there is not, while the
//	                    first one ends
#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../core/port.h"
#include "../include/rma2.h"
#include "../include/velo2.h"
#include "check.h"

enum { SIZE = 64 * 1024, LIES = 20000 };

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

static int serve(int peers)
{
	RMA2_Port port;
	RMA2_Region *region;
	RMA2_NLA nla;
	RMA2_Notification *n;
	velo2_port_t velo;
	char *mem = aligned_alloc(4096, SIZE), text[200];
	memset(mem, 0, SIZE);
	EQUAL(rma2_open(&port), RMA2_SUCCESS);
	EQUAL(velo2_open(&velo), VELO2_RET_SUCCESS);
	EQUAL(rma2_register(port, mem, SIZE, &region), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(region, 0, &nla), RMA2_SUCCESS);
	printf("%u %u %llu %u\n", rma2_get_nodeid(port), rma2_get_vpid(port), (unsigned long long)nla, velo2_get_vpid(&velo));
	fflush(stdout);
	while (peers > 0) {
		RMA2_ERROR err = rma2_noti_get_block(port, &n);
		if (err == RMA2_ERR_ERROR) {
			say("node gone");
			return 0;
		}
		EQUAL(err, RMA2_SUCCESS);
		rma2_noti_sdump(n, text, sizeof(text));
		if (rma2_noti_get_error(n) == (RMA2_ERROR_RESP | RMA2_ERROR_CMPL) && rma2_noti_get_cmd(n) == RMA2_ANY &&
		    rma2_noti_get_notification_type(n) == RMA2_REQUESTER_NOTIFICATION && rma2_noti_get_local_address(n) == 0)
			peers--;
		rma2_noti_free(port, n);
		for (int i = 0; i < 8; i++)
			(void)velo2_probe_recv(&velo, text, sizeof(text), NULL, NULL, NULL, NULL);
	}
	say("gone");
	EQUAL(rma2_unregister(port, region), RMA2_SUCCESS);
	EQUAL(rma2_close(port), RMA2_SUCCESS);
	EQUAL(velo2_close(&velo), VELO2_RET_SUCCESS);
	free(mem);
	return 0;
}

// refused ends the program when the peer was gone before it was reached.
static void refused(int is)
{
	if (!is)
		return;
	say("refused");
	exit(0);
}

static int hammer(char **peer)
{
	RMA2_Port port;
	RMA2_Handle to;
	RMA2_Region *region;
	RMA2_Notification *n;
	velo2_port_t velo;
	velo2_connection_t box;
	RMA2_NLA nla = strtoull(peer[2], NULL, 10);
	char *mem = aligned_alloc(4096, SIZE);
	memset(mem, 1, SIZE);
	EQUAL(rma2_open(&port), RMA2_SUCCESS);
	EQUAL(velo2_open(&velo), VELO2_RET_SUCCESS);
	EQUAL(rma2_register(port, mem, SIZE, &region), RMA2_SUCCESS);
	refused(rma2_connect(port, (RMA2_Nodeid)atoi(peer[0]), (RMA2_VPID)atoi(peer[1]), RMA2_CONN_DEFAULT, &to) != RMA2_SUCCESS);
	refused(velo2_connect(&velo, &box, (velo2_nodeid_t)atoi(peer[0]), (velo2_vpid_t)atoi(peer[3])) != VELO2_RET_SUCCESS);
	say("connected");
	for (uint32_t i = 0;; i = (i + 4096) % SIZE) {
		RMA2_ERROR err = rma2_post_put_bt(port, to, region, i, 4096, nla + i, RMA2_REQCOMPL_NOTIFICATION, RMA2_CMD_DEFAULT);
		if (err == RMA2_ERR_ERROR) {
			say("node gone");
			return 0;
		}
		EQUAL(err, RMA2_SUCCESS);
		EQUAL(rma2_noti_get_block(port, &n), RMA2_SUCCESS);
		if (rma2_noti_get_error(n) != 0)
			break;
		rma2_noti_free(port, n);
		(void)velo2_try_send(&box, mem, 100, 0, 0);
	}
	say("gone");
	return 0;
}

static uint64_t state;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

// scribble writes anything somewhere, mostly near the beginning.
static void scribble(uint8_t *mem, size_t size)
{
	size_t at = any() % (any() % 2 ? size : 4096 + 1024) / 8 * 8;
	uint64_t word = any();
	switch (any() % 4) {
	case 0:
		word = any() % 4096;
		break;
	case 1:
		word = ~0ull << any() % 64;
		break;
	}
	memcpy(mem + at % (size - 8), &word, 8);
}

static int lie(char **peer)
{
	struct exn_port port[2];
	struct exn_grant *g[2];
	EQUAL(exn_port_open(&port[0], EXN_RMA, 0), EXN_OK);
	EQUAL(exn_port_open(&port[1], EXN_VELO, 0), EXN_OK);
	refused(exn_port_connect(&port[0], (uint16_t)atoi(peer[0]), (uint16_t)atoi(peer[1]), &g[0]) != EXN_OK);
	refused(exn_port_connect(&port[1], (uint16_t)atoi(peer[0]), (uint16_t)atoi(peer[3]), &g[1]) != EXN_OK);
	say("connected");
	// That it has ended, which only the server's own library says.
	uint64_t *slot = (uint64_t *)exn_flow_slot(&g[0]->out);
	slot[1] = 0;
	slot[2] = (uint64_t)RMA2_REQUESTER_NOTIFICATION << 48 | (uint64_t)RMA2_ANY << 51 |
		  (uint64_t)(RMA2_ERROR_RESP | RMA2_ERROR_CMPL) << 61;
	exn_port_commit(&port[0], g[0], 16);
	for (int i = 0; i < LIES; i++) {
		int unit = any() % 2;
		struct exn_flow *f = &g[unit]->out;
		switch (any() % 8) {
		case 0:
			scribble(port[unit].page, 4096);
			break;
		case 1:
			scribble(g[0]->memory, EXN_MEMORY);
			break;
		case 2:
			(void)!write(g[unit]->bell, "", 1);
			break;
		case 3: // one that arrives, whatever it says
			if (exn_flow_room(f))
				exn_flow_commit(f, any());
			break;
		default:
			scribble(f->mem, EXN_FLOW_HEADER + (size_t)f->slots * f->size);
		}
		if (i % 256 == 0)
			(void)!write(g[unit]->bell, "", 1);
	}
	// Messages, and at last one that breaks the rules.
	for (int i = 0; i < 50; i++) {
		struct exn_msg m = {.op = EXN_CONNECT + any() % 6, .node = (uint16_t)(any() % 4), .vpid = (uint16_t)any(), .a = any(), .b = any() % 3, .c = any() % 4};
		(void)send(port[0].sock, &m, sizeof(m), MSG_NOSIGNAL);
	}
	uint64_t junk[12] = {any(), any()};
	(void)send(port[0].sock, junk, any() % sizeof(junk), MSG_NOSIGNAL);
	(void)send(port[1].sock, junk, sizeof(junk), MSG_NOSIGNAL);
	say("done");
	return 0;
}

static int ask_two(char **peer)
{
	RMA2_Port port;
	RMA2_Handle to;
	RMA2_Notification *n;
	EQUAL(rma2_open(&port), RMA2_SUCCESS);
	EQUAL(rma2_connect(port, (RMA2_Nodeid)atoi(peer[0]), (RMA2_VPID)atoi(peer[1]), RMA2_CONN_DEFAULT, &to), RMA2_SUCCESS);
	EQUAL(rma2_connect(port, 9, 20, RMA2_CONN_DEFAULT, &to), RMA2_ERR_NO_ROUTE);
	EQUAL(rma2_noti_get_block(port, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_cmd(n), RMA2_ANY);
	EQUAL(rma2_close(port), RMA2_SUCCESS);
	say("done");
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (strcmp(what, "serve") == 0)
		return serve(argc > 2 ? atoi(argv[2]) : 1);
	if (strcmp(what, "hammer") == 0 && argc == 6)
		return hammer(argv + 2);
	if (strcmp(what, "lie") == 0 && argc == 7) {
		state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
		return lie(argv + 3);
	}
	if (strcmp(what, "ask") == 0 && argc == 4)
		return ask_two(argv + 2);
	fprintf(stderr, "usage: peers serve [N] | hammer PEER | lie SEED PEER | ask NODE VPID\n");
	return 2;
}

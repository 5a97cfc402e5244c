// hosts.c: two ports of nodes that are not on one host, whose sockets are given. The nodes do what
// the ports ask for.
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "../include/rma2.h"
#include "../include/velo2.h"
#include "check.h"

enum { SIZE = 300 * 1000 };

static char **nodes;
static RMA2_Port a, b;
static RMA2_Handle to_b;

static void at(int node)
{
	CHECK(setenv("EXN_PORTS", nodes[node], 1) == 0);
}

static void velo(void)
{
	enum { COUNT = 1000 };
	velo2_port_t p, q;
	velo2_connection_t c, back;
	uint32_t len, source, got[30], sent[30] = {0};
	uint8_t tag, mtt;
	at(0);
	EQUAL(velo2_open(&p), VELO2_RET_SUCCESS);
	at(1);
	EQUAL(velo2_open(&q), VELO2_RET_SUCCESS);
	CHECK(velo2_get_nodeid(&p) != velo2_get_nodeid(&q));
	EQUAL(velo2_connect(&p, &c, velo2_get_nodeid(&q), 255), VELO2_RET_INVALID_MBOX);
	EQUAL(velo2_connect(&p, &c, velo2_get_nodeid(&q), velo2_get_vpid(&q)), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&q, &back, velo2_get_nodeid(&p), velo2_get_vpid(&p)), VELO2_RET_SUCCESS);
	// In order, more than there is room for on the way.
	unsigned taken = 0;
	for (unsigned i = 0; i < COUNT || taken < COUNT;) {
		sent[0] = i;
		if (i < COUNT && velo2_try_send(&c, sent, 4 + i % 117, (uint8_t)i, i % 16) == VELO2_RET_SUCCESS) {
			i++;
			continue;
		}
		EQUAL(velo2_recv(&q, got, sizeof(got), &len, &source, &tag, &mtt), VELO2_RET_SUCCESS);
		CHECK(len == 4 + taken % 117 && tag == (uint8_t)taken && mtt == taken % 16);
		EQUAL(got[0], taken);
		EQUAL(source, VELO2_ADDR_PACK(velo2_get_nodeid(&p), velo2_get_vpid(&p)));
		taken++;
	}
	EQUAL(velo2_send(&back, "back", 5, 1, 2), VELO2_RET_SUCCESS);
	EQUAL(velo2_recv(&p, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_SUCCESS);
	CHECK(len == 5 && strcmp((char *)got, "back") == 0);
	// What was sent before the end arrives before it.
	for (int i = 0; i < 50; i++)
		EQUAL(velo2_send(&c, &i, sizeof(i), 0, 0), VELO2_RET_SUCCESS);
	EQUAL(velo2_close(&p), VELO2_RET_SUCCESS);
	for (int i = 0; i < 50; i++) {
		EQUAL(velo2_recv(&q, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_SUCCESS);
		EQUAL(got[0], i);
	}
	EQUAL(velo2_recv(&q, got, sizeof(got), &len, &source, NULL, NULL), VELO2_RET_EOF);
	while (velo2_send(&back, "x", 1, 0, 0) == VELO2_RET_SUCCESS)
		usleep(1000);
	EQUAL(velo2_close(&q), VELO2_RET_SUCCESS);
}

// expect waits for a notification and compares it.
static RMA2_Notification expect(RMA2_Port port, unsigned type, unsigned command, unsigned error)
{
	RMA2_Notification *n, copy;
	RMA2_Port peer = port == a ? b : a;
	EQUAL(rma2_noti_get_block(port, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_notification_type(n), type);
	EQUAL(rma2_noti_get_cmd(n), command);
	EQUAL(rma2_noti_get_error(n), error);
	EQUAL(rma2_noti_get_remote_nodeid(n), rma2_get_nodeid(peer));
	EQUAL(rma2_noti_get_remote_vpid(n), rma2_get_vpid(peer));
	EQUAL(rma2_noti_dup(n, &copy), RMA2_SUCCESS);
	return copy;
}

static void nothing(RMA2_Port port)
{
	RMA2_Notification *n;
	EQUAL(rma2_noti_probe(port, &n), RMA2_NO_NOTI);
}

static void transfers(RMA2_Region *mine, char *mem_a, RMA2_NLA nla_a, char *mem_b, RMA2_NLA nla_b)
{
	static const uint32_t sizes[] = {1, 8, 496, 497, 4096, 65536, 100000, SIZE - 8};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint32_t n = sizes[i], last = n % 496 ? n % 496 : 496;
		memset(mem_b, 0, SIZE);
		EQUAL(rma2_post_put_bt(a, to_b, mine, 3, n, nla_b + 5, RMA2_REQCOMPL_NOTIFICATION, 0), RMA2_SUCCESS);
		RMA2_Notification r = expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, 0);
		RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_PUT, 0);
		EQUAL(rma2_noti_get_local_address(&r), nla_a + 3 + n - last);
		EQUAL(rma2_noti_get_local_address(&c), nla_b + 5 + n - last);
		EQUAL(rma2_noti_get_size(&c), last);
		EQUAL(rma2_noti_get_mode(&c), RMA2_NOTI_TE);
		CHECK(memcmp(mem_b + 5, mem_a + 3, n) == 0 && mem_b[4] == 0 && mem_b[5 + n] == 0);
		memset(mem_b, 'b', SIZE);
		EQUAL(rma2_post_get_bt(a, to_b, mine, 0, n, nla_b, RMA2_ALL_NOTIFICATIONS, 0), RMA2_SUCCESS);
		expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_GET, 0);
		c = expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_GET_BT_RSP, 0);
		EQUAL(rma2_noti_get_total_size(nla_a, &c), n);
		expect(b, RMA2_RESPONDER_NOTIFICATION, RMA2_BT_GET, 0);
		CHECK(memcmp(mem_a, mem_b, n) == 0 && mem_a[n] != 'b');
		for (unsigned k = 0; k < SIZE; k++)
			mem_a[k] = (char)(k * 7);
	}
	EQUAL(rma2_post_put_bt(a, to_b, mine, 0, 1000, nla_b, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_NTR), RMA2_SUCCESS);
	for (unsigned i = 0; i < 3; i++) {
		RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_PUT, 0);
		EQUAL(rma2_noti_get_local_address(&c), nla_b + 496 * i);
	}
	nothing(a);
	nothing(b);
}

static void small_operations(char *mem_b, RMA2_NLA nla_a, RMA2_NLA nla_b)
{
	EQUAL(rma2_post_immediate_put(a, to_b, 8, 0x1122334455667788, nla_b, RMA2_REQCOMPL_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, 0);
	expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_IMMEDIATE_PUT, 0);
	EQUAL(*(uint64_t *)mem_b, 0x1122334455667788);
	EQUAL(rma2_post_notification(a, to_b, 0xab, ~5ull, RMA2_ALL_NOTIFICATIONS, 0), RMA2_SUCCESS);
	RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	CHECK(rma2_noti_get_notiput_payload(&c) == ~5ull && rma2_noti_get_notiput_class(&c) == 0xab);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	for (int i = 0; i < 4; i++) {
		EQUAL(rma2_post_lock(a, to_b, 0, 7, 14, 7, RMA2_ALL_NOTIFICATIONS, 0), RMA2_SUCCESS);
		expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_LOCK_REQ, 0);
		c = expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_LOCK_RSP, 0);
		EQUAL(rma2_noti_get_lock_number(&c), 7);
		EQUAL(rma2_noti_get_lock_value(&c), i < 3 ? 7 * (i + 1) : 21);
		EQUAL(rma2_noti_get_lock_result(&c), i < 3);
		expect(b, RMA2_RESPONDER_NOTIFICATION, RMA2_LOCK_REQ, 0);
	}
	// What is refused is reported, asked for or not.
	EQUAL(rma2_post_immediate_put(a, to_b, 8, 0, nla_b - 8, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_CMPL);
	EQUAL(rma2_post_put_bt_direct(a, to_b, nla_a - 8, 8, nla_b, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_REQ);
	EQUAL(rma2_post_get_bt_direct(a, to_b, nla_a, 8, nla_b - 8, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_GET, RMA2_ERROR_RESP);
	EQUAL(rma2_post_lock(a, to_b, 0, 16384, 0, 1, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_LOCK_REQ, RMA2_ERROR_RESP);
	nothing(a);
	nothing(b);
}

// What comes late for memory that is not registered any more fails, on both ends, though others
// have its address.
static void fresh(void)
{
	enum { BYTES = 3 * 4096 };
	char *mem = aligned_alloc(4096, BYTES), *into = aligned_alloc(4096, BYTES);
	RMA2_Region theirs, mine;
	RMA2_NLA from[2], to[2];
	memset(mem, 'f', BYTES);
	for (int i = 0; i < 2; i++) {
		EQUAL(rma2_register_fresh(b, mem, BYTES, &theirs), RMA2_SUCCESS);
		EQUAL(rma2_register_fresh(a, into, BYTES, &mine), RMA2_SUCCESS);
		EQUAL(rma2_get_nla(&theirs, 0, &from[i]), RMA2_SUCCESS);
		EQUAL(rma2_get_nla(&mine, 0, &to[i]), RMA2_SUCCESS);
		if (i > 0)
			break;
		EQUAL(rma2_unregister_nofree(b, &theirs), RMA2_SUCCESS);
		EQUAL(rma2_unregister_nofree(a, &mine), RMA2_SUCCESS);
	}
	CHECK(from[0] != from[1] && (from[0] ^ from[1]) << 24 == 0 && to[0] != to[1] && (to[0] ^ to[1]) << 24 == 0);
	memset(into, '-', BYTES);
	EQUAL(rma2_post_get_bt_direct(a, to_b, to[1], BYTES, from[0], RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_GET, RMA2_ERROR_RESP);
	EQUAL(rma2_post_get_bt_direct(a, to_b, to[0], BYTES, from[1], RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_GET, RMA2_ERROR_REQ);
	EQUAL(rma2_post_put_bt_direct(a, to_b, to[1], BYTES, from[0], RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_CMPL);
	CHECK(into[0] == '-' && mem[0] == 'f');
	EQUAL(rma2_post_get_bt_direct(a, to_b, to[1], BYTES, from[1], RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_GET_BT_RSP, 0);
	CHECK(memcmp(mem, into, BYTES) == 0);
	EQUAL(rma2_unregister_nofree(b, &theirs), RMA2_SUCCESS);
	EQUAL(rma2_unregister_nofree(a, &mine), RMA2_SUCCESS);
	nothing(a);
	nothing(b);
	free(mem);
	free(into);
}

// A register of the far node: 0 is read.
static void registers(char *mem_a, RMA2_NLA nla_a)
{
	RMA2_Handle c;
	RMA2_Notification *n;
	EQUAL(rma2_connect(a, rma2_get_nodeid(b), 0, RMA2_CONN_RRA | RMA2_CONN_TE, &c), RMA2_SUCCESS);
	EQUAL(rma2_post_get_qw_direct(a, c, nla_a, 8, 0, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_block(a, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_error(n), 0);
	EQUAL(rma2_noti_free(a, n), RMA2_SUCCESS);
	EQUAL(*(uint64_t *)mem_a, 4711);
}

int main(int argc, char **argv)
{
	RMA2_Region *mine, *theirs;
	RMA2_NLA nla_a, nla_b;
	CHECK(argc == 3);
	nodes = argv + 1;
	velo();
	char *mem_a = aligned_alloc(4096, SIZE / 4096 * 4096 + 4096), *mem_b = aligned_alloc(4096, SIZE / 4096 * 4096 + 4096);
	for (int i = 0; i < SIZE; i++)
		mem_a[i] = (char)(i * 7);
	at(0);
	EQUAL(rma2_open(&a), RMA2_SUCCESS);
	at(1);
	EQUAL(rma2_open(&b), RMA2_SUCCESS);
	EQUAL(rma2_register(a, mem_a, SIZE, &mine), RMA2_SUCCESS);
	EQUAL(rma2_register(b, mem_b, SIZE, &theirs), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(mine, 0, &nla_a), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(theirs, 0, &nla_b), RMA2_SUCCESS);
	EQUAL(rma2_connect(a, rma2_get_nodeid(b), 255, RMA2_CONN_DEFAULT, &to_b), RMA2_ERR_NO_CONNECT);
	EQUAL(rma2_connect(a, rma2_get_nodeid(b), rma2_get_vpid(b), RMA2_CONN_DEFAULT, &to_b), RMA2_SUCCESS);
	transfers(mine, mem_a, nla_a, mem_b, nla_b);
	small_operations(mem_b, nla_a, nla_b);
	fresh();
	registers(mem_a, nla_a);
	EQUAL(rma2_unregister(b, theirs), RMA2_SUCCESS);
	EQUAL(rma2_post_put_bt(a, to_b, mine, 0, 8, nla_b, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_CMPL);
	EQUAL(rma2_close(b), RMA2_SUCCESS);
	RMA2_Notification *n;
	EQUAL(rma2_noti_get_block(a, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_cmd(n), RMA2_ANY);
	EQUAL(rma2_noti_free(a, n), RMA2_SUCCESS);
	EQUAL(rma2_unregister(a, mine), RMA2_SUCCESS);
	EQUAL(rma2_close(a), RMA2_SUCCESS);
	free(mem_a);
	free(mem_b);
	return 0;
}

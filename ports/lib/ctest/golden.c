// golden.c: what the API does, between two ports of one process. It needs a node (EXN_PORTS).
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/rma2.h"
#include "../include/velo2.h"
#include "check.h"

static RMA2_Port a, b;
static RMA2_Handle to_b; // from a
static char *mem_a, *mem_b;
static RMA2_Region *region_a, *region_b;
static RMA2_NLA nla_a, nla_b;

enum { SIZE = 2 << 20 };

static void begin(void)
{
	EQUAL(rma2_open(&a), RMA2_SUCCESS);
	EQUAL(rma2_open(&b), RMA2_SUCCESS);
	CHECK(rma2_get_vpid(a) != rma2_get_vpid(b));
	EQUAL(rma2_get_nodeid(a), rma2_get_nodeid(b));
	EQUAL(rma2_connect(a, rma2_get_nodeid(b), rma2_get_vpid(b), RMA2_CONN_DEFAULT, &to_b), RMA2_SUCCESS);
	EQUAL(rma2_handle_get_vpid(to_b), rma2_get_vpid(b));
	mem_a = aligned_alloc(4096, SIZE);
	mem_b = aligned_alloc(4096, SIZE);
	for (int i = 0; i < SIZE; i++)
		mem_a[i] = (char)(i * 7);
	memset(mem_b, 0, SIZE);
	EQUAL(rma2_register(a, mem_a, SIZE, &region_a), RMA2_SUCCESS);
	EQUAL(rma2_register(b, mem_b, SIZE, &region_b), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(region_a, 0, &nla_a), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(region_b, 0, &nla_b), RMA2_SUCCESS);
	for (int i = 0; i < SIZE; i++) // registering has changed nothing
		CHECK(mem_a[i] == (char)(i * 7));
}

// expect takes the next notification and compares it.
static RMA2_Notification expect(RMA2_Port port, unsigned type, unsigned command, unsigned error)
{
	RMA2_Notification *n, copy;
	EQUAL(rma2_noti_probe(port, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_notification_type(n), type);
	EQUAL(rma2_noti_get_cmd(n), command);
	EQUAL(rma2_noti_get_error(n), error);
	EQUAL(rma2_noti_get_remote_nodeid(n), rma2_get_nodeid(a));
	EQUAL(rma2_noti_get_remote_vpid(n), rma2_get_vpid(port == a ? b : a));
	EQUAL(rma2_noti_dup(n, &copy), RMA2_SUCCESS);
	return copy;
}

static void nothing(RMA2_Port port)
{
	RMA2_Notification *n;
	EQUAL(rma2_noti_probe(port, &n), RMA2_NO_NOTI);
	CHECK(n == NULL);
}

// Notifications carry the address of the last packet of 496 bytes (thesis 5.4.2).
static void last_packets(void)
{
	static const struct {
		uint32_t size, address, last;
	} cases[] = {
		{1, 0, 1}, {495, 0, 495}, {496, 0, 496}, {497, 496, 1}, {4096, 3968, 128},
		{65536, 65472, 64}, {1 << 20, 1048544, 32}, {992, 496, 496},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint32_t n = cases[i].size;
		memset(mem_b, 0, SIZE);
		EQUAL(rma2_post_put_bt(a, to_b, region_a, 8, n, nla_b + 16, RMA2_REQCOMPL_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
		CHECK(memcmp(mem_b + 16, mem_a + 8, n) == 0 && mem_b[15] == 0 && mem_b[16 + n] == 0);
		RMA2_Notification r = expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, 0);
		RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_PUT, 0);
		EQUAL(rma2_noti_get_local_address(&r), nla_a + 8 + cases[i].address);
		EQUAL(rma2_noti_get_local_address(&c), nla_b + 16 + cases[i].address);
		EQUAL(rma2_noti_get_size(&c), cases[i].last);
		EQUAL(rma2_noti_get_total_size(nla_b + 16, &c), n);
		EQUAL(rma2_noti_get_mode(&c), RMA2_NOTI_TE);
	}
}

// Table 3.1: which notifications a PUT and a GET write, and none else.
static void table31(void)
{
	for (unsigned spec = 0; spec < 8; spec++) {
		EQUAL(rma2_post_put_qw(a, to_b, region_a, 0, 64, nla_b, spec, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
		if (spec & RMA2_REQUESTER_NOTIFICATION)
			expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_QW_PUT, 0);
		if (spec & RMA2_COMPLETER_NOTIFICATION)
			expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_QW_PUT, 0);
		nothing(a);
		nothing(b);
		EQUAL(rma2_post_get_qw(a, to_b, region_a, 0, 64, nla_b, spec, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
		if (spec & RMA2_REQUESTER_NOTIFICATION)
			expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_QW_GET, 0);
		if (spec & RMA2_COMPLETER_NOTIFICATION)
			expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_GET_QW_RSP, 0);
		if (spec & RMA2_RESPONDER_NOTIFICATION)
			expect(b, RMA2_RESPONDER_NOTIFICATION, RMA2_QW_GET, 0);
		nothing(a);
		nothing(b);
	}
}

static void small_operations(void)
{
	uint64_t value = 0x1122334455667788;
	memset(mem_b, 0, 64);
	for (unsigned n = 1; n <= 8; n++) {
		memset(mem_b, 0, 16);
		EQUAL(rma2_post_immediate_put(a, to_b, n, value, nla_b + 3, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
		RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_IMMEDIATE_PUT, 0);
		EQUAL(rma2_noti_get_size(&c), n);
		CHECK(memcmp(mem_b + 3, &value, n) == 0 && mem_b[2] == 0 && mem_b[3 + n] == 0);
	}
	EQUAL(rma2_post_notification(a, to_b, 0xab, value, RMA2_ALL_NOTIFICATIONS, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	EQUAL(rma2_noti_get_notiput_payload(&c), value);
	EQUAL(rma2_noti_get_notiput_class(&c), 0xab);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	// A notification for each packet.
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, 1000, nla_b, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_NTR), RMA2_SUCCESS);
	for (int i = 0; i < 3; i++) {
		c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_PUT, 0);
		EQUAL(rma2_noti_get_local_address(&c), nla_b + 496 * (unsigned)i);
		EQUAL(rma2_noti_get_size(&c), i < 2 ? 496 : 8);
	}
	nothing(b);
}

static void locks(void)
{
	for (int i = 0; i < 4; i++) {
		EQUAL(rma2_post_lock(a, to_b, 0, 16383, 14, 7, RMA2_ALL_NOTIFICATIONS, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
		RMA2_Notification r = expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_LOCK_REQ, 0);
		EQUAL(rma2_noti_get_lock_value(&r), 14);
		EQUAL(rma2_noti_get_lock_result(&r), 0);
		RMA2_Notification c = expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_LOCK_RSP, 0);
		EQUAL(rma2_noti_get_lock_number(&c), 16383);
		EQUAL(rma2_noti_get_lock_value(&c), i < 3 ? 7 * (i + 1) : 21);
		EQUAL(rma2_noti_get_lock_result(&c), i < 3);
		expect(b, RMA2_RESPONDER_NOTIFICATION, RMA2_LOCK_REQ, 0);
	}
	EQUAL(rma2_post_lock(a, to_b, 0, 16384, 0, 1, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_LOCK_REQ, RMA2_ERROR_RESP);
}

// What is refused is reported, asked for or not, and changes nothing.
static void refusals(void)
{
	memset(mem_b, 1, SIZE);
	RMA2_NLA wrong[] = {nla_b + SIZE, nla_b - 1, nla_b + 0x1000000, 0, ~0ull, nla_a, nla_b + SIZE - 99};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, 100, wrong[i], RMA2_NO_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
		expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_CMPL);
		EQUAL(rma2_post_get_bt(a, to_b, region_a, 0, 100, wrong[i], RMA2_NO_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
		expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_GET, RMA2_ERROR_RESP);
	}
	EQUAL(rma2_post_put_bt_direct(a, to_b, nla_b, 100, nla_b, RMA2_NO_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_REQ);
	EQUAL(rma2_post_put_bt(a, to_b, region_a, SIZE - 8, 9, nla_b, RMA2_NO_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_REQ);
	EQUAL(rma2_post_immediate_put(a, to_b, 8, 0, nla_b, RMA2_NO_NOTIFICATION, RMA2_CMD_EWA), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_REQ);
	for (int i = 0; i < SIZE; i++)
		CHECK(mem_b[i] == 1);
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, 0, nla_b, 0, 0), RMA2_ERR_INV_VALUE);
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, (8 << 20) + 1, nla_b, 0, 0), RMA2_ERR_INV_VALUE);
	EQUAL(rma2_post_put_qw(a, to_b, region_a, 4, 8, nla_b, 0, 0), RMA2_ERR_INV_VALUE);
	EQUAL(rma2_post_get_bt(a, to_b, region_a, 0, 8, nla_b, 0, RMA2_CMD_MC), RMA2_SUCCESS); // only VELO and PUTs
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_GET, RMA2_ERROR_REQ);
	RMA2_Handle none;
	EQUAL(rma2_connect(a, rma2_get_nodeid(a), 9, RMA2_CONN_DEFAULT, &none), RMA2_ERR_NO_CONNECT);
	EQUAL(rma2_connect(a, 999, 20, RMA2_CONN_DEFAULT, &none), RMA2_ERR_NO_ROUTE);
	nothing(a);
	nothing(b);
}

static void matching(void)
{
	RMA2_Notification *n;
	for (unsigned i = 1; i <= 3; i++)
		EQUAL(rma2_post_notification(a, to_b, (RMA2_Class)i, i, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, 1000, nla_b, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	EQUAL(rma2_noti_noti_match(b, 4, RMA2_NODEID_ANY, RMA2_VPID_ANY, &n), RMA2_NO_NOTI);
	EQUAL(rma2_noti_noti_match_block(b, 2, rma2_get_nodeid(a), rma2_get_vpid(a), &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_notiput_payload(n), 2);
	EQUAL(rma2_noti_free(b, n), RMA2_SUCCESS);
	EQUAL(rma2_noti_match(b, RMA2_PUTS, RMA2_NODEID_ANY, RMA2_VPID_ANY, RMA2_ALL_NOTIFICATIONS, nla_b + 1, 0, &n), RMA2_NO_NOTI);
	EQUAL(rma2_noti_match(b, RMA2_BT_PUT, RMA2_NODEID_ANY, RMA2_VPID_ANY, RMA2_ALL_NOTIFICATIONS, nla_b + 992,
			      (int)RMA2_MATCH_LAST_NLA_FLAG, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_free(b, n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_block(b, &n), RMA2_SUCCESS); // the others are in their order
	EQUAL(rma2_noti_get_notiput_payload(n), 1);
	char text[256];
	rma2_noti_sdump(n, text, sizeof(text));
	CHECK(strstr(text, "notification PUT") != NULL && strstr(text, "class 0x1") != NULL);
	rma2_noti_sdump(n, text, 5);
	EQUAL(strlen(text), 4);
	EQUAL(rma2_noti_free(b, n), RMA2_SUCCESS);
	EQUAL(rma2_noti_free(b, n), RMA2_ERR_INV_VALUE);
	EQUAL(rma2_noti_get_block(b, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_notiput_payload(n), 3);
	EQUAL(rma2_noti_free(b, n), RMA2_SUCCESS);
	nothing(b);
}

static void descriptors(void)
{
	RMA2_Descriptor *d;
	EQUAL(rma2_desc_alloc(a, &d), RMA2_SUCCESS);
	EQUAL(rma2_desc_set_put_get(d, to_b, RMA2_BT_PUT, 8 << 20, RMA2_COMPLETER_NOTIFICATION, 0, nla_a, nla_b), RMA2_SUCCESS);
	EQUAL(rma2_post_descriptor(a, to_b, d), RMA2_SUCCESS); // too long for the region
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_REQ);
	EQUAL(rma2_desc_set_put_get(d, to_b, RMA2_BT_GET, 100, RMA2_COMPLETER_NOTIFICATION, 0, nla_b, nla_a), RMA2_SUCCESS);
	for (int i = 0; i < 2; i++) {
		EQUAL(rma2_post_descriptor(a, to_b, d), RMA2_SUCCESS);
		expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_GET_BT_RSP, 0);
	}
	EQUAL(rma2_desc_set_noti_put(d, to_b, RMA2_COMPLETER_NOTIFICATION, 0, 7, 8), RMA2_SUCCESS);
	EQUAL(rma2_desc_set_notification_value(d, 9, 10), RMA2_SUCCESS);
	EQUAL(rma2_post_descriptor(a, to_b, d), RMA2_SUCCESS);
	RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	EQUAL(rma2_noti_get_notiput_class(&c), 9);
	EQUAL(rma2_noti_get_notiput_payload(&c), 10);
	// A command that there is none of: the requester refuses it, and the completer.
	EQUAL(rma2_desc_set_put_get(d, to_b, 4, 8, RMA2_ALL_NOTIFICATIONS, 0, nla_a, nla_b), RMA2_SUCCESS);
	EQUAL(rma2_post_descriptor(a, to_b, d), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, 4, RMA2_ERROR_REQ);
	expect(b, RMA2_COMPLETER_NOTIFICATION, 4, RMA2_ERROR_CMPL);
	EQUAL(rma2_desc_free(a, d), RMA2_SUCCESS);
	int n;
	EQUAL(rma2_desc_query_free(a, &n), RMA2_SUCCESS);
	EQUAL(n, 1);
}

// A region in the page of the stack that the library's own calls use.
static void small_on_stack(void)
{
	for (int i = 0; i < 4096; i += 256) {
		char mem[64 + i];
		RMA2_Region *r;
		memset(mem, 7, sizeof(mem));
		EQUAL(rma2_register(a, mem, 64, &r), RMA2_SUCCESS);
		EQUAL(rma2_unregister(a, r), RMA2_SUCCESS);
		EQUAL(mem[0] + mem[63], 14);
	}
}

// Regions that share pages, on the heap and the stack; what peers write is seen in all of them.
static void regions(void)
{
	char stack[6000], *heap = aligned_alloc(4096, 5 * 4096);
	RMA2_Region *r[4];
	RMA2_NLA at;
	memset(stack, 'S', sizeof(stack));
	memset(heap, 'H', 5 * 4096);
	EQUAL(rma2_register(b, heap + 100, 64, &r[0]), RMA2_SUCCESS);
	EQUAL(rma2_register(b, heap + 50, 3 * 4096, &r[1]), RMA2_SUCCESS);
	EQUAL(rma2_register(b, heap + 2 * 4096, 3 * 4096, &r[2]), RMA2_SUCCESS);
	EQUAL(rma2_register(b, stack, sizeof(stack), &r[3]), RMA2_SUCCESS);
	size_t pages, size;
	EQUAL(rma2_get_page_count(r[1], &pages), RMA2_SUCCESS);
	EQUAL(rma2_get_size(r[1], &size), RMA2_SUCCESS);
	EQUAL(pages, 4);
	EQUAL(size, 3 * 4096);
	CHECK(rma2_get_region_contained(r[1], heap, 4 * 4096) && !rma2_get_region_contained(r[1], heap, 4 * 4096 + 1));
	CHECK(rma2_get_region_overlap(r[1], heap + 4 * 4096 - 1, 9) && !rma2_get_region_overlap(r[1], heap + 4 * 4096, 9));
	// Across the pages that r[2] has first and that are behind others in the port's memory.
	EQUAL(rma2_get_nla(r[1], 0, &at), RMA2_SUCCESS);
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, 3 * 4096, at, 0, 0), RMA2_SUCCESS);
	CHECK(memcmp(heap + 50, mem_a, 3 * 4096) == 0 && heap[49] == 'H' && heap[50 + 3 * 4096] == 'H');
	EQUAL(rma2_get_nla(r[2], 4096, &at), RMA2_SUCCESS);
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '!', at, 0, 0), RMA2_SUCCESS);
	CHECK(heap[3 * 4096] == '!');
	EQUAL(rma2_get_nla(r[3], 5999, &at), RMA2_SUCCESS);
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '?', at, 0, 0), RMA2_SUCCESS);
	CHECK(stack[0] == 'S' && stack[5998] == 'S' && stack[5999] == '?');
	EQUAL(rma2_unregister(b, r[1]), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(r[0], 0, &at), RMA2_SUCCESS);
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '+', at, 0, 0), RMA2_SUCCESS);
	CHECK(heap[100] == '+' && memcmp(heap + 101, mem_a + 51, 4096) == 0);
	EQUAL(rma2_unregister(b, r[0]), RMA2_SUCCESS);
	EQUAL(rma2_unregister(b, r[2]), RMA2_SUCCESS);
	EQUAL(rma2_unregister(b, r[3]), RMA2_SUCCESS);
	CHECK(heap[100] == '+' && heap[3 * 4096] == '!' && stack[5999] == '?');
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '-', at, 0, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_CMPL);
	nothing(a);
	free(heap);
	RMA2_Region *c[2];
	EQUAL(rma2_register_cached(b, mem_b + 100, 50, &c[0]), RMA2_SUCCESS);
	EQUAL(rma2_register_cached(b, mem_b + 100, 50, &c[1]), RMA2_SUCCESS);
	CHECK(c[0] == c[1]);
	EQUAL(rma2_unregister_cached(b, c[0]), RMA2_SUCCESS);
	EQUAL(rma2_unregister_cached(b, c[0]), RMA2_SUCCESS);
	EQUAL(rma2_unregister_cached(b, c[0]), RMA2_ERR_NO_TABLE);
	CHECK(rma2_register(b, (void *)0x1000, 4096, &c[0]) == RMA2_ERR_NO_MEM);
	EQUAL(rma2_register(b, mem_b, (1ul << 30) + 1, &c[0]), RMA2_ERR_INV_VALUE);
}

// A page list: pages anywhere are one range of addresses, also for the program's own operations.
static void page_lists(void)
{
	enum { PAGES = 5 };
	struct {
		void *page;
		int more;
	} list[PAGES];
	static const int order[PAGES] = {4, 0, 1, 7, 2};
	char *heap = aligned_alloc(4096, 8 * 4096);
	RMA2_Region *r, *other;
	RMA2_NLA at;
	size_t size;
	void *va;
	memset(heap, 'H', 8 * 4096);
	for (int i = 0; i < PAGES; i++)
		list[i].page = heap + order[i] * 4096;
	unsigned length = 3 * 4096 + 1000 + 77; // from byte 3096 of the first page to byte 77 of the last
	EQUAL(rma2_register(b, heap + 4096, 100, &other), RMA2_SUCCESS); // a page of it is registered already
	EQUAL(rma2_register_pagelist(b, &list[0].page, PAGES, sizeof(list[0]), 3096, length, &r), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(r, 0, &at), RMA2_SUCCESS);
	EQUAL(at % 4096, 3096);
	EQUAL(rma2_get_size(r, &size), RMA2_SUCCESS);
	EQUAL(size, length);
	EQUAL(rma2_get_va(r, 999, &va), RMA2_SUCCESS);
	CHECK(va == heap + 4 * 4096 + 4095);
	EQUAL(rma2_get_va(r, 1000, &va), RMA2_ERR_INV_VALUE);
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, length, at, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_PUT, 0);
	EQUAL(rma2_noti_get_total_size(at, &c), length);
	CHECK(memcmp(heap + 4 * 4096 + 3096, mem_a, 1000) == 0 && heap[4 * 4096 + 3095] == 'H');
	CHECK(memcmp(heap, mem_a + 1000, 2 * 4096) == 0 && memcmp(heap + 7 * 4096, mem_a + 1000 + 2 * 4096, 4096) == 0);
	CHECK(memcmp(heap + 2 * 4096, mem_a + 1000 + 3 * 4096, 77) == 0 && heap[2 * 4096 + 77] == 'H');
	// Back, gathered by the owner.
	RMA2_Handle to_a;
	EQUAL(rma2_connect(b, rma2_get_nodeid(a), rma2_get_vpid(a), RMA2_CONN_DEFAULT, &to_a), RMA2_SUCCESS);
	EQUAL(rma2_post_put_bt(b, to_a, r, 1, length - 1, nla_a + SIZE / 2, 0, 0), RMA2_SUCCESS);
	CHECK(memcmp(mem_a + SIZE / 2, mem_a + 1, length - 1) == 0);
	EQUAL(rma2_unregister(b, r), RMA2_SUCCESS);
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '-', at, 0, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_CMPL);
	EQUAL(rma2_unregister(b, other), RMA2_SUCCESS);
	CHECK(memcmp(heap, mem_a + 1000, 2 * 4096) == 0 && heap[3 * 4096] == 'H');
	// The lengths that end in another page than the last, and what is no page.
	EQUAL(rma2_register_pagelist(b, &list[0].page, 2, sizeof(list[0]), 96, 4000, &r), RMA2_ERR_INV_VALUE);
	EQUAL(rma2_register_pagelist(b, &list[0].page, 2, sizeof(list[0]), 96, 8097, &r), RMA2_ERR_INV_VALUE);
	EQUAL(rma2_register_pagelist(b, &list[0].page, 1, sizeof(list[0]), 4096, 1, &r), RMA2_ERR_INV_VALUE);
	list[1].page = heap + 8;
	EQUAL(rma2_register_pagelist(b, &list[0].page, 2, sizeof(list[0]), 96, 4001, &r), RMA2_ERR_INV_VALUE);
	list[1].page = (void *)0x1000;
	EQUAL(rma2_register_pagelist(b, &list[0].page, 2, sizeof(list[0]), 96, 4001, &r), RMA2_ERR_NO_MEM);
	for (int i = 0; i < SIZE; i++)
		mem_a[i] = (char)(i * 7);
	free(heap);
	nothing(a);
	nothing(b);
}

// child_writes has a child write to a byte, as it has it.
static void child_writes(char *at, char value)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		*at = value;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// After fork registered pages are shared with the child, whose end ends nothing; others are not.
static void forked(void)
{
	char *mem = aligned_alloc(4096, 2 * 4096);
	RMA2_Region *r;
	RMA2_NLA at;
	memset(mem, 'p', 2 * 4096);
	EQUAL(rma2_register(b, mem, 4096, &r), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(r, 0, &at), RMA2_SUCCESS);
	child_writes(mem, 'c');
	child_writes(mem + 4096, 'c');
	CHECK(mem[0] == 'c' && mem[4096] == 'p');
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '!', at, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_IMMEDIATE_PUT, 0);
	CHECK(mem[0] == '!');
	EQUAL(rma2_unregister(b, r), RMA2_SUCCESS);
	child_writes(mem, 'c');
	CHECK(mem[0] == '!');
	free(mem);
}

// A register of the node: 0 is read, 8 is read and written by root.
static void registers(void)
{
	RMA2_Handle c;
	RMA2_Notification *n;
	uint64_t *word = (uint64_t *)mem_a;
	EQUAL(rma2_connect(a, rma2_get_nodeid(a), 0, RMA2_CONN_RRA | RMA2_CONN_TE, &c), RMA2_SUCCESS);
	EQUAL(rma2_post_get_qw_direct(a, c, nla_a, 16, 0, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_block(a, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_error(n), 0);
	EQUAL(rma2_noti_get_mode(n) & RMA2_NOTI_RRA, RMA2_NOTI_RRA);
	EQUAL(rma2_noti_free(a, n), RMA2_SUCCESS);
	EQUAL(word[0], 4711);
	EQUAL(word[1], 0);
	EQUAL(rma2_post_immediate_put(a, c, 8, 42, 8, RMA2_REQUESTER_NOTIFICATION, 0), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_block(a, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_error(n), geteuid() == 0 ? 0 : RMA2_ERROR_CMPL);
	EQUAL(rma2_noti_free(a, n), RMA2_SUCCESS);
	EQUAL(rma2_post_get_qw_direct(a, c, nla_a, 8, 24, 0, 0), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_block(a, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_error(n), RMA2_ERROR_RESP);
	EQUAL(rma2_noti_free(a, n), RMA2_SUCCESS);
	EQUAL(rma2_disconnect(a, c), RMA2_SUCCESS);
	EQUAL(rma2_disconnect(a, c), RMA2_ERR_INV_HANDLE);
	for (int i = 0; i < 16; i++)
		mem_a[i] = (char)(i * 7);
}

static void protection(void)
{
	RMA2_Port c;
	RMA2_Handle h;
	EQUAL(rma2_open(&c), RMA2_SUCCESS);
	EQUAL(rma2_set_protectionid(c, 7), RMA2_SUCCESS);
	EQUAL(rma2_connect(c, rma2_get_nodeid(b), rma2_get_vpid(b), RMA2_CONN_DEFAULT, &h), RMA2_ERR_NO_CONNECT);
	EQUAL(rma2_set_protectionid(c, 0), RMA2_SUCCESS);
	EQUAL(rma2_connect(c, rma2_get_nodeid(b), rma2_get_vpid(b), RMA2_CONN_DEFAULT, &h), RMA2_SUCCESS);
	unsigned vpid = rma2_get_vpid(c);
	EQUAL(rma2_post_notification(c, h, 1, 2, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	EQUAL(rma2_close(c), RMA2_SUCCESS);
	// What it has sent is there, and then its end.
	RMA2_Notification *n;
	EQUAL(rma2_noti_get_block(b, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_notiput_payload(n), 2);
	EQUAL(rma2_noti_free(b, n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_block(b, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_error(n), RMA2_ERROR_RESP | RMA2_ERROR_CMPL);
	EQUAL(rma2_noti_get_remote_vpid(n), vpid);
	EQUAL(rma2_noti_free(b, n), RMA2_SUCCESS);
}

static void velo(void)
{
	velo2_port_t p, q;
	velo2_connection_t c, back;
	char msg[200], got[200];
	uint32_t len, source;
	uint8_t tag, mtt;
	for (unsigned i = 0; i < sizeof(msg); i++)
		msg[i] = (char)i;
	EQUAL(velo2_open(&p), VELO2_RET_SUCCESS);
	EQUAL(velo2_open(&q), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&p, &c, velo2_get_nodeid(&q), velo2_get_vpid(&q)), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&q, &back, velo2_get_nodeid(&p), velo2_get_vpid(&p)), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&q, &back, velo2_get_nodeid(&p), 3), VELO2_RET_INVALID_MBOX);
	EQUAL(velo2_connect(&q, &back, 999, 16), VELO2_RET_INVALID_NODE);
	EQUAL(velo2_probe(&q), VELO2_RET_NO_MSG);
	for (unsigned n = 1; n <= 120; n++) {
		EQUAL(velo2_send(&c, msg, n, (uint8_t)(n + 100), n % 16), VELO2_RET_SUCCESS);
		EQUAL(velo2_probe(&q), VELO2_RET_SUCCESS);
		EQUAL(velo2_recv(&q, got, sizeof(got), &len, &source, &tag, &mtt), VELO2_RET_SUCCESS);
		CHECK(len == n && memcmp(got, msg, n) == 0 && tag == (uint8_t)(n + 100) && mtt == n % 16);
		EQUAL(source, VELO2_ADDR_PACK(velo2_get_nodeid(&p), velo2_get_vpid(&p)));
	}
	EQUAL(velo2_send(&c, msg, 121, 0, 0), VELO2_RET_INV_MSG);
	EQUAL(velo2_send(&c, msg, 0, 0, 0), VELO2_RET_INV_MSG);
	EQUAL(velo2_send(&c, msg, 1, 0, 16), VELO2_RET_INV_MTT);
	unsigned n = 0;
	while (velo2_try_send(&c, &n, sizeof(n), 0, 0) == VELO2_RET_SUCCESS)
		n++;
	EQUAL(n, 128); // the credits of a flow
	EQUAL(velo2_try_send(&c, &n, sizeof(n), 0, 0), VELO2_RET_TRY_AGAIN);
	for (unsigned i = 0; i < n; i++) {
		EQUAL(velo2_probe_recv(&q, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_SUCCESS);
		CHECK(len == sizeof(i) && memcmp(got, &i, sizeof(i)) == 0);
	}
	EQUAL(velo2_probe_recv(&q, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_NO_MSG);
	EQUAL(velo2_send(&c, msg, 100, 0, 0), VELO2_RET_SUCCESS);
	EQUAL(velo2_probe_recv(&q, got, 99, &len, NULL, NULL, NULL), VELO2_RET_INV_MSG);
	EQUAL(len, 100);
	EQUAL(velo2_send(&c, msg, 1, 0, 0), VELO2_RET_SUCCESS);
	EQUAL(velo2_close(&p), VELO2_RET_SUCCESS);
	EQUAL(velo2_recv(&q, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_SUCCESS);
	EQUAL(velo2_recv(&q, got, sizeof(got), &len, &source, NULL, NULL), VELO2_RET_EOF);
	EQUAL(velo2_send(&back, msg, 1, 0, 0), VELO2_RET_ERROR);
	EQUAL(velo2_close(&q), VELO2_RET_SUCCESS);
}

int main(void)
{
	begin();
	last_packets();
	table31();
	small_operations();
	locks();
	refusals();
	matching();
	descriptors();
	regions();
	page_lists();
	forked();
	small_on_stack();
	registers();
	protection();
	EQUAL(rma2_unregister(a, region_a), RMA2_SUCCESS);
	EQUAL(rma2_unregister(b, region_b), RMA2_SUCCESS);
	for (int i = 0; i < SIZE; i++)
		CHECK(mem_a[i] == (char)(i * 7));
	EQUAL(rma2_close(a), RMA2_SUCCESS);
	EQUAL(rma2_close(b), RMA2_SUCCESS);
	free(mem_a);
	free(mem_b);
	velo();
	return 0;
}

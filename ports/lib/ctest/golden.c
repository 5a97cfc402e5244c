// golden.c: what operations of librma2 do, between two ports of one process. It needs a node
// (EXN_PORTS).
#include "pair.h"

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
	EQUAL(rma2_post_immediate_put(a, to_b, 8, 4711, nla_b, RMA2_NO_NOTIFICATION, RMA2_CMD_EWA), RMA2_SUCCESS);
	RMA2_Notification refused = expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_REQ);
	EQUAL(rma2_noti_get_local_address(&refused), 0); // it has none, and the value is no address
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

int main(void)
{
	begin(NULL);
	last_packets();
	table31();
	small_operations();
	locks();
	refusals();
	matching();
	descriptors();
	registers();
	protection();
	end();
	return 0;
}

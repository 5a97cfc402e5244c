// pair.h: two RMA ports of one process, a and b, each with SIZE registered bytes.
#ifndef EXN_PAIR_H
#define EXN_PAIR_H

#include <string.h>

#include "../include/rma2.h"
#include "check.h"

static RMA2_Port a, b;
static RMA2_Handle to_b; // from a
static char *mem_a, *mem_b;
static RMA2_Region *region_a, *region_b;
static RMA2_NLA nla_a, nla_b;

enum { SIZE = 2 << 20 };

// begin opens both at the node of EXN_PORTS, or b at another one.
static void begin(const char *other)
{
	EQUAL(rma2_open(&a), RMA2_SUCCESS);
	if (other != NULL)
		CHECK(setenv("EXN_PORTS", other, 1) == 0);
	EQUAL(rma2_open(&b), RMA2_SUCCESS);
	CHECK((rma2_get_nodeid(a) == rma2_get_nodeid(b)) == (other == NULL));
	CHECK(other != NULL || rma2_get_vpid(a) != rma2_get_vpid(b));
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
	EQUAL(rma2_noti_get_remote_nodeid(n), rma2_get_nodeid(port == a ? b : a));
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

static void end(void)
{
	EQUAL(rma2_unregister(a, region_a), RMA2_SUCCESS);
	EQUAL(rma2_unregister(b, region_b), RMA2_SUCCESS);
	for (int i = 0; i < SIZE; i++)
		CHECK(mem_a[i] == (char)(i * 7));
	EQUAL(rma2_close(a), RMA2_SUCCESS);
	EQUAL(rma2_close(b), RMA2_SUCCESS);
	free(mem_a);
	free(mem_b);
}

#endif

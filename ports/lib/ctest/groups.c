// groups.c: multicast, of a port at the first of the nodes whose sockets are given to those at the
// two others. They are the group 5, with a node that has no such port.
#define _GNU_SOURCE
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "../include/rma2.h"
#include "../include/velo2.h"
#include "check.h"

enum { GROUP = 5, EMPTY = 6, VPID = 99, SIZE = 10000 };

static char **nodes;

static void at(int node)
{
	CHECK(setenv("EXN_PORTS", nodes[node], 1) == 0);
}

static void gets(velo2_port_t *p, int want, uint32_t source)
{
	int got;
	uint32_t len, from;
	uint8_t tag, mtt;
	EQUAL(velo2_recv(p, &got, sizeof(got), &len, &from, &tag, &mtt), VELO2_RET_SUCCESS);
	CHECK(len == sizeof(got) && tag == 7 && mtt == 3);
	EQUAL(got, want);
	EQUAL(from, source);
}

static void velo(void)
{
	velo2_port_t from, second, third, other;
	velo2_connection_t c, none;
	int n = 0, got;
	at(0);
	EQUAL(velo2_open(&from), VELO2_RET_SUCCESS);
	at(1);
	EQUAL(velo2_open_vpid(&second, VPID), VELO2_RET_SUCCESS);
	EQUAL(velo2_get_vpid(&second), VPID);
	EQUAL(velo2_open_vpid(&other, VPID), VELO2_RET_ERR_FDOPEN);
	uint32_t source = VELO2_ADDR_PACK(velo2_get_nodeid(&from), velo2_get_vpid(&from));
	EQUAL(velo2_connect(&from, &c, VELO2_MCADDR_PACK(64), VPID), VELO2_RET_INVALID_NODE);
	EQUAL(velo2_connect(&from, &none, VELO2_MCADDR_PACK(EMPTY), VPID), VELO2_RET_SUCCESS);
	EQUAL(velo2_send(&none, &n, sizeof(n), 7, 3), VELO2_RET_SUCCESS); // to nobody
	EQUAL(velo2_connect(&from, &c, VELO2_MCADDR_PACK(GROUP), VPID), VELO2_RET_SUCCESS);
	EQUAL(velo2_send(&c, &n, sizeof(n), 7, 3), VELO2_RET_SUCCESS);
	gets(&second, n, source);
	// A member that opens later gets what is sent then.
	at(2);
	EQUAL(velo2_open_vpid(&third, VPID), VELO2_RET_SUCCESS);
	do {
		n++;
		EQUAL(velo2_send(&c, &n, sizeof(n), 7, 3), VELO2_RET_SUCCESS);
		gets(&second, n, source);
	} while (velo2_probe(&third) == VELO2_RET_NO_MSG);
	gets(&third, n, source);
	// To all or to none: a member has no room.
	int first = n + 1;
	while (velo2_try_send(&c, &(int){n + 1}, sizeof(n), 7, 3) == VELO2_RET_SUCCESS) {
		n++;
		gets(&third, n, source);
	}
	EQUAL(n - first + 1, 128);
	EQUAL(velo2_probe_recv(&third, &got, sizeof(got), NULL, NULL, NULL, NULL), VELO2_RET_NO_MSG);
	for (int i = first; i <= n; i++)
		gets(&second, i, source);
	EQUAL(velo2_probe_recv(&second, &got, sizeof(got), NULL, NULL, NULL, NULL), VELO2_RET_NO_MSG);
	// One that has ended is left out.
	EQUAL(velo2_close(&second), VELO2_RET_SUCCESS);
	n++;
	EQUAL(velo2_send(&c, &n, sizeof(n), 7, 3), VELO2_RET_SUCCESS);
	gets(&third, n, source);
	EQUAL(velo2_close(&third), VELO2_RET_SUCCESS);
	EQUAL(velo2_close(&from), VELO2_RET_SUCCESS);
}

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	CHECK(d != NULL);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

// Members that open and end all the time leave nothing behind at the sender, as groups or as peers.
static void churn(void)
{
	enum { TIMES = 40, AROUND = 4 };
	velo2_port_t from, member;
	velo2_connection_t group, one;
	RMA2_Port origin, target;
	RMA2_Handle handle;
	int before = 0;
	at(0);
	EQUAL(velo2_open(&from), VELO2_RET_SUCCESS);
	EQUAL(rma2_open(&origin), RMA2_SUCCESS);
	at(1);
	for (int i = 0; i < TIMES; i++) {
		while (velo2_open_vpid(&member, VPID) != VELO2_RET_SUCCESS)
			usleep(100); // the node has not seen the end of the last one
		EQUAL(rma2_open(&target), RMA2_SUCCESS);
		do { // a message to the last one is lost, if its end has not come to the sender's node yet
			EQUAL(velo2_connect(&from, &group, VELO2_MCADDR_PACK(GROUP), VPID), VELO2_RET_SUCCESS);
			EQUAL(velo2_send(&group, &i, sizeof(i), 7, 3), VELO2_RET_SUCCESS);
		} while (velo2_probe(&member) == VELO2_RET_NO_MSG && usleep(100) == 0);
		gets(&member, i, VELO2_ADDR_PACK(velo2_get_nodeid(&from), velo2_get_vpid(&from)));
		EQUAL(velo2_connect(&from, &one, velo2_get_nodeid(&member), VPID), VELO2_RET_SUCCESS);
		EQUAL(rma2_connect(origin, rma2_get_nodeid(target), rma2_get_vpid(target), RMA2_CONN_DEFAULT, &handle), RMA2_SUCCESS);
		EQUAL(velo2_close(&member), VELO2_RET_SUCCESS);
		EQUAL(rma2_close(target), RMA2_SUCCESS);
		EQUAL(velo2_disconnect(&from, &one), VELO2_RET_SUCCESS);
		EQUAL(rma2_disconnect(origin, handle), RMA2_SUCCESS);
		if (i == AROUND)
			before = descriptors();
	}
	CHECK(descriptors() <= before + AROUND);
	EQUAL(velo2_close(&from), VELO2_RET_SUCCESS);
	EQUAL(rma2_close(origin), RMA2_SUCCESS);
}

static void takes(RMA2_Port p, unsigned type, unsigned command, unsigned error)
{
	RMA2_Notification *n;
	EQUAL(rma2_noti_get_block(p, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_notification_type(n), type);
	EQUAL(rma2_noti_get_cmd(n), command);
	EQUAL(rma2_noti_get_error(n), error);
	EQUAL(rma2_noti_free(p, n), RMA2_SUCCESS);
	EQUAL(rma2_noti_probe(p, &n), RMA2_NO_NOTI);
}

// A PUT to all, at the address that their memory has in common.
static void rma(void)
{
	RMA2_Port from, to[2];
	RMA2_Handle group;
	RMA2_Region *region[3];
	RMA2_NLA nla[2];
	char *mem[3];
	at(0);
	EQUAL(rma2_open(&from), RMA2_SUCCESS);
	for (int i = 0; i < 3; i++) {
		mem[i] = aligned_alloc(4096, 3 * 4096);
		memset(mem[i], 'a' + i, 3 * 4096);
	}
	EQUAL(rma2_register(from, mem[2], SIZE, &region[2]), RMA2_SUCCESS);
	for (int i = 0; i < 2; i++) {
		at(1 + i);
		EQUAL(rma2_open_vpid(&to[i], VPID), RMA2_SUCCESS);
		EQUAL(rma2_register(to[i], mem[i], SIZE, &region[i]), RMA2_SUCCESS);
		EQUAL(rma2_get_nla(region[i], 0, &nla[i]), RMA2_SUCCESS);
	}
	EQUAL(nla[0], nla[1]);
	EQUAL(rma2_connect(from, 43, VPID, RMA2_CONN_DEFAULT, &group), RMA2_ERR_NO_ROUTE);
	EQUAL(rma2_connect(from, GROUP, VPID, RMA2_CONN_DEFAULT, &group), RMA2_SUCCESS);
	EQUAL(rma2_post_put_bt(from, group, region[2], 0, SIZE, nla[0], RMA2_REQCOMPL_NOTIFICATION, RMA2_CMD_MC), RMA2_SUCCESS);
	takes(from, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, 0);
	for (int i = 0; i < 2; i++) {
		takes(to[i], RMA2_COMPLETER_NOTIFICATION, RMA2_BT_PUT, 0);
		CHECK(memcmp(mem[i], mem[2], SIZE) == 0 && mem[i][SIZE] == 'a' + i);
	}
	EQUAL(rma2_post_immediate_put(from, group, 1, 'z', nla[0], RMA2_NO_NOTIFICATION, RMA2_CMD_MC), RMA2_SUCCESS);
	CHECK(mem[0][0] == 'z' && mem[1][0] == 'z');
	EQUAL(rma2_post_notification(from, group, 1, 2, RMA2_REQCOMPL_NOTIFICATION, RMA2_CMD_MC), RMA2_SUCCESS);
	takes(from, RMA2_REQUESTER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	takes(to[0], RMA2_COMPLETER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	takes(to[1], RMA2_COMPLETER_NOTIFICATION, RMA2_NOTIFICATION_PUT, 0);
	// One has taken its memory back: the other gets it all the same. Without the modifier the
	// number is that of a node, which there is none of.
	EQUAL(rma2_unregister(to[0], region[0]), RMA2_SUCCESS);
	EQUAL(rma2_post_immediate_put(from, group, 1, 'y', nla[0], RMA2_NO_NOTIFICATION, RMA2_CMD_MC), RMA2_SUCCESS);
	takes(from, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_CMPL);
	CHECK(mem[0][0] == 'z' && mem[1][0] == 'y');
	EQUAL(rma2_post_immediate_put(from, group, 1, 'x', nla[0], RMA2_NO_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	takes(from, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_REQ);
	EQUAL(rma2_unregister(to[1], region[1]), RMA2_SUCCESS);
	EQUAL(rma2_unregister(from, region[2]), RMA2_SUCCESS);
	EQUAL(rma2_close(from), RMA2_SUCCESS);
	for (int i = 0; i < 3; i++) {
		if (i < 2)
			EQUAL(rma2_close(to[i]), RMA2_SUCCESS);
		free(mem[i]);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	nodes = argv + 1;
	velo();
	churn();
	rma();
	return 0;
}

// unregister.c: memory is unregistered while the node of another host writes to it. Lines on the
// standard input say when the bytes are held, and when they are let go.
#include <string.h>

#include "../include/rma2.h"
#include "check.h"

enum { SIZE = 300 * 4096 };

static void line(const char *say)
{
	char b[64];
	puts(say);
	fflush(stdout);
	CHECK(fgets(b, sizeof(b), stdin) != NULL);
}

static char *filled(char with)
{
	char *mem = aligned_alloc(4096, SIZE);
	CHECK(mem != NULL);
	memset(mem, with, SIZE);
	return mem;
}

static void all(const char *mem, char want)
{
	for (int i = 0; i < SIZE; i++)
		CHECK(mem[i] == want);
}

int main(int argc, char **argv)
{
	RMA2_Port a, b;
	RMA2_Handle to_b;
	RMA2_Region *mine, *theirs, *other;
	RMA2_NLA at, from, now;
	RMA2_Notification *n;
	CHECK(argc == 3);
	CHECK(setenv("EXN_PORTS", argv[1], 1) == 0);
	EQUAL(rma2_open(&a), RMA2_SUCCESS);
	CHECK(setenv("EXN_PORTS", argv[2], 1) == 0);
	EQUAL(rma2_open(&b), RMA2_SUCCESS);
	char *mem_a = filled('a'), *mem_b = filled('b'), *mem_c = filled('c');
	EQUAL(rma2_register(a, mem_a, SIZE, &mine), RMA2_SUCCESS);
	EQUAL(rma2_register(b, mem_b, SIZE, &theirs), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(mine, 0, &at), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(theirs, 0, &from), RMA2_SUCCESS);
	EQUAL(rma2_connect(a, rma2_get_nodeid(b), rma2_get_vpid(b), RMA2_CONN_DEFAULT, &to_b), RMA2_SUCCESS);
	EQUAL(rma2_post_get_bt(a, to_b, mine, 0, SIZE, from, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	line("posted");
	EQUAL(rma2_unregister(a, mine), RMA2_SUCCESS);
	all(mem_a, 'a');
	EQUAL(rma2_register(a, mem_c, SIZE, &other), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(other, 0, &now), RMA2_SUCCESS);
	CHECK(now >= at + SIZE);
	line("registered");
	EQUAL(rma2_noti_get_block(a, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_free(a, n), RMA2_SUCCESS);
	all(mem_a, 'a');
	all(mem_c, 'c');
	// Nothing runs any more: the next one gets what the first one had.
	EQUAL(rma2_register(a, mem_a, SIZE, &mine), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(mine, 0, &now), RMA2_SUCCESS);
	EQUAL(now, at);
	EQUAL(rma2_unregister(a, mine), RMA2_SUCCESS);
	EQUAL(rma2_unregister(a, other), RMA2_SUCCESS);
	EQUAL(rma2_unregister(b, theirs), RMA2_SUCCESS);
	EQUAL(rma2_close(b), RMA2_SUCCESS);
	EQUAL(rma2_close(a), RMA2_SUCCESS);
	free(mem_a);
	free(mem_b);
	free(mem_c);
	puts("done");
	return 0;
}

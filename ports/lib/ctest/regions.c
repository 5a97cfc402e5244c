// regions.c: what librma2 registers, between two ports of one process. It needs a node (EXN_PORTS);
// with the socket of another one, the second port is at that.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"
#include "../rma/rma.h"

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

// Memory that others share stays where it is, and the node reads and writes it.
static void in_place(void)
{
	enum { BYTES = 5 * 4096 };
	int fd = memfd_create("shared", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
	char *mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *twin = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mem != MAP_FAILED && twin != MAP_FAILED);
	memset(mem, 's', BYTES);
	RMA2_Region *r;
	RMA2_NLA at;
	EQUAL(rma2_register(b, mem + 100, BYTES - 200, &r), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(r, 0, &at), RMA2_SUCCESS);
	unsigned n = BYTES - 300;
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 3, n, at + 7, RMA2_REQCOMPL_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, 0);
	RMA2_Notification c = expect(b, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_PUT, 0);
	EQUAL(rma2_noti_get_total_size(at + 7, &c), n);
	CHECK(memcmp(twin + 107, mem_a + 3, n) == 0 && twin[106] == 's' && twin[107 + n] == 's');
	twin[4096] = '#';
	EQUAL(rma2_post_get_bt(a, to_b, region_a, SIZE / 2, n, at + 7, RMA2_COMPLETER_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_GET_BT_RSP, 0);
	CHECK(memcmp(mem_a + SIZE / 2, mem + 107, n) == 0);
	EQUAL(rma2_post_immediate_put(a, to_b, 8, 0x3132333435363738, at + 4, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	CHECK(memcmp(twin + 104, "87654321", 8) == 0);
	// More than goes at once, to memory that two ports have: the second one in its place.
	RMA2_Region *again;
	EQUAL(rma2_register(b, mem_a, SIZE, &again), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(again, 0, &at), RMA2_SUCCESS);
	enum { MUCH = SIZE / 2 + 8192 };
	static char want[MUCH], got[MUCH];
	RMA2_Region *wanted, *gotten;
	for (int i = 0; i < MUCH; i++)
		want[i] = (char)(i * 3);
	EQUAL(rma2_register(a, want, MUCH, &wanted), RMA2_SUCCESS);
	EQUAL(rma2_register(a, got, MUCH, &gotten), RMA2_SUCCESS);
	EQUAL(rma2_post_put_bt(a, to_b, wanted, 0, MUCH, at, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	EQUAL(rma2_post_get_bt(a, to_b, gotten, 0, MUCH, at, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	CHECK(memcmp(mem_a, want, MUCH) == 0 && memcmp(got, want, MUCH) == 0);
	for (int i = 0; i < SIZE; i++)
		mem_a[i] = (char)(i * 7);
	EQUAL(rma2_unregister(a, wanted), RMA2_SUCCESS);
	EQUAL(rma2_unregister(a, gotten), RMA2_SUCCESS);
	EQUAL(rma2_unregister(b, again), RMA2_SUCCESS);
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '-', at, 0, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_CMPL);
	// It is gone, though it is registered: the node finds nothing.
	EQUAL(rma2_get_nla(r, 0, &at), RMA2_SUCCESS);
	EQUAL(munmap(mem, BYTES), 0);
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '-', at, 0, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_IMMEDIATE_PUT, RMA2_ERROR_CMPL);
	EQUAL(rma2_unregister(b, r), RMA2_SUCCESS);
	nothing(a);
	nothing(b);
	munmap(twin, BYTES);
	close(fd);
}

// mapped is the line of /proc/self/maps for an address.
static void mapped(const void *at, char *line, int size)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	CHECK(f != NULL);
	do
		CHECK(fgets(line, size, f) != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2);
	while ((unsigned long)at - from >= to - from);
	fclose(f);
}

// Pages that a port had when it was closed move to the next one that they are registered at.
static void left(void)
{
	char *mem = aligned_alloc(4096, 4096), before[512], after[512];
	RMA2_Region *r;
	RMA2_Port c;
	RMA2_NLA at;
	memset(mem, 'l', 4096);
	EQUAL(rma2_open(&c), RMA2_SUCCESS);
	EQUAL(rma2_register(c, mem, 4096, &r), RMA2_SUCCESS);
	EQUAL(rma2_close(c), RMA2_SUCCESS);
	free(r);
	mapped(mem, before, sizeof(before));
	CHECK(strstr(before, "exnet-port-memory") != NULL);
	EQUAL(rma2_register(b, mem, 4096, &r), RMA2_SUCCESS);
	mapped(mem, after, sizeof(after));
	CHECK(strstr(after, "exnet-port-memory") != NULL && strcmp(before, after) != 0);
	EQUAL(rma2_get_nla(r, 0, &at), RMA2_SUCCESS);
	EQUAL(rma2_post_immediate_put(a, to_b, 1, '!', at, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	CHECK(mem[0] == '!' && mem[1] == 'l');
	EQUAL(rma2_unregister(b, r), RMA2_SUCCESS);
	free(mem);
}

// What comes late for memory that is not registered any more fails, whatever is at its address, and
// finds the old bytes if it had begun.
static void fresh(void)
{
	enum { BYTES = 8 * 4096 };
	const RMA2_NLA generations = ~0ull << EXN_GENERATION;
	char *one = aligned_alloc(4096, BYTES), *two = aligned_alloc(4096, BYTES);
	static char got[BYTES];
	RMA2_Region r;
	RMA2_NLA old, now, mine;
	uint32_t run;
	memset(one, '1', BYTES);
	memset(two, '2', BYTES);
	EQUAL(rma2_register_fresh(b, one, BYTES, &r), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(&r, 0, &old), RMA2_SUCCESS);
	EQUAL(rma2_get_now(a, to_b, got, BYTES, old), RMA2_SUCCESS);
	CHECK(memcmp(got, one, BYTES) == 0);
	// A peer copies.
	const uint8_t *there = rma_remote(to_b->grant, old, BYTES, false, &run);
	CHECK(there != NULL && run == BYTES);
	uint64_t *copies = exn_flow_word(&to_b->grant->out, EXN_FLOW_BUSY);
	__atomic_fetch_add(copies, 1, __ATOMIC_SEQ_CST);
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS);
	EQUAL(rma2_register_fresh(b, two, BYTES, &r), RMA2_SUCCESS);
	CHECK(memcmp(there, one, BYTES) == 0);
	EQUAL(rma2_get_now(a, to_b, got, 8, old), RMA2_ERR_NO_TABLE);
	__atomic_fetch_sub(copies, 1, __ATOMIC_SEQ_CST);
	// Then its address and its memory are others'.
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS);
	EQUAL(rma2_register_fresh(b, two, BYTES, &r), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(&r, 0, &now), RMA2_SUCCESS);
	CHECK(((now ^ old) & ~generations) == 0 && now != old);
	CHECK(memcmp(there, two, BYTES) == 0);
	EQUAL(rma2_get_now(a, to_b, got, BYTES, now), RMA2_SUCCESS);
	CHECK(memcmp(got, two, BYTES) == 0);
	EQUAL(rma2_get_now(a, to_b, got, 8, old), RMA2_ERR_NO_TABLE);
	EQUAL(rma2_post_get_bt(a, to_b, region_a, 0, 8, old, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_GET, RMA2_ERROR_RESP);
	EQUAL(rma2_post_put_bt(a, to_b, region_a, 0, 8, old, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_REQUESTER_NOTIFICATION, RMA2_BT_PUT, RMA2_ERROR_CMPL);
	EQUAL(rma2_get_nla(region_a, 0, &mine), RMA2_SUCCESS);
	EQUAL(rma2_post_get_bt_direct(a, to_b, mine | (now & generations), 8, now, RMA2_NO_NOTIFICATION, 0), RMA2_SUCCESS);
	expect(a, RMA2_COMPLETER_NOTIFICATION, RMA2_BT_GET, RMA2_ERROR_REQ);
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS);
	// Memory that cannot move has no room for a generation.
	char *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	EQUAL(rma2_register_fresh(b, shared, BYTES, &r), RMA2_ERR_NO_MEM);
	munmap(shared, BYTES);
	nothing(a);
	nothing(b);
	free(one);
	free(two);
}

// again registers memory at b. It returns the address, without the generation.
static RMA2_NLA again(char *mem, size_t size, RMA2_Region *r)
{
	RMA2_NLA nla;
	EQUAL(rma2_register_fresh(b, mem, size, r), RMA2_SUCCESS);
	EQUAL(rma2_get_nla(r, 0, &nla), RMA2_SUCCESS);
	return nla & ~(~0ull << EXN_GENERATION);
}

// Addresses come back when each peer has been seen not to copy, though always one does.
static void by_turns(void)
{
	enum { BYTES = 4 * 4096 };
	char *mem = aligned_alloc(4096, BYTES);
	RMA2_Port c;
	RMA2_Handle from_c;
	RMA2_Region r;
	EQUAL(rma2_open(&c), RMA2_SUCCESS);
	EQUAL(rma2_connect(c, rma2_get_nodeid(b), rma2_get_vpid(b), RMA2_CONN_DEFAULT, &from_c), RMA2_SUCCESS);
	uint64_t *copies[] = {exn_flow_word(&to_b->grant->out, EXN_FLOW_BUSY), exn_flow_word(&from_c->grant->out, EXN_FLOW_BUSY)};
	memset(mem, 'm', BYTES);
	__atomic_fetch_add(copies[0], 1, __ATOMIC_SEQ_CST);
	const RMA2_NLA first = again(mem, BYTES, &r);
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS); // the second peer is idle
	__atomic_fetch_add(copies[1], 1, __ATOMIC_SEQ_CST);
	const RMA2_NLA second = again(mem, BYTES, &r);
	CHECK(second != first);
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS); // both copy
	__atomic_fetch_sub(copies[0], 1, __ATOMIC_SEQ_CST);
	EQUAL(again(mem, BYTES, &r), first); // the first one is idle now: only it may have had this
	__atomic_fetch_add(copies[0], 1, __ATOMIC_SEQ_CST);
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS);
	__atomic_fetch_sub(copies[1], 1, __ATOMIC_SEQ_CST);
	EQUAL(again(mem, BYTES, &r), second);
	__atomic_fetch_sub(copies[0], 1, __ATOMIC_SEQ_CST);
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS);
	EQUAL(again(mem, BYTES, &r), first);
	EQUAL(rma2_unregister_nofree(b, &r), RMA2_SUCCESS);
	nothing(b);
	EQUAL(rma2_close(c), RMA2_SUCCESS);
	free(mem);
}

int main(int argc, char **argv)
{
	begin(argc > 1 ? argv[1] : NULL);
	regions();
	page_lists();
	forked();
	small_on_stack();
	in_place();
	left();
	fresh();
	by_turns();
	end();
	return 0;
}

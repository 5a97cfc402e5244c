// store.c: a key-value store. One port has the values; clients change them by lock operations, GET
// and PUT, and it does nothing but wait for their end. It needs a node (EXN_PORTS).
//
//	store processes   clients that are processes
//	store threads     clients that are threads
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/rma2.h"
#include "check.h"

enum { CLIENTS = 4, KEYS = 8, VALUE = 200, ROUNDS = 400 };

// address is where the store is, as clients are told.
struct address {
	RMA2_Nodeid node;
	RMA2_VPID vpid;
	RMA2_NLA values;
};

struct client {
	RMA2_Port port;
	RMA2_Handle store;
	RMA2_Region *region;
	uint32_t *value; // a copy: all of its words are equal
	RMA2_NLA values;
};

// done waits for the completer's notification of an operation.
static RMA2_Notification done(struct client *c, RMA2_Notification_Spec type)
{
	RMA2_Notification *n, copy;
	EQUAL(rma2_noti_get_block(c->port, &n), RMA2_SUCCESS);
	EQUAL(rma2_noti_get_error(n), 0);
	EQUAL(rma2_noti_get_notification_type(n), type);
	EQUAL(rma2_noti_dup(n, &copy), RMA2_SUCCESS);
	return copy;
}

// change adds to a lock if it is not above limit, and says whether it did.
static int change(struct client *c, uint32_t lock, int32_t limit, int32_t add)
{
	EQUAL(rma2_post_lock(c->port, c->store, 0, lock, limit, add, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	RMA2_Notification n = done(c, RMA2_COMPLETER_NOTIFICATION);
	EQUAL(rma2_noti_get_lock_number(&n), lock);
	return rma2_noti_get_lock_result(&n);
}

// increment adds 1 to all words of a value.
static void increment(struct client *c, unsigned key)
{
	RMA2_NLA at = c->values + key * VALUE;
	while (!change(c, key, 0, 1))
		sched_yield();
	EQUAL(rma2_post_get_bt(c->port, c->store, c->region, 0, VALUE, at, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	done(c, RMA2_COMPLETER_NOTIFICATION);
	uint32_t was = c->value[0];
	for (unsigned i = 0; i < VALUE / sizeof(*c->value); i++) {
		EQUAL(c->value[i], was);
		c->value[i]++;
	}
	EQUAL(rma2_post_put_bt(c->port, c->store, c->region, 0, VALUE, at, RMA2_REQUESTER_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	done(c, RMA2_REQUESTER_NOTIFICATION);
	CHECK(change(c, key, 1, -1));
}

static void client(const struct address *to, unsigned seed)
{
	struct client c = {.values = to->values};
	EQUAL(rma2_open(&c.port), RMA2_SUCCESS);
	c.value = aligned_alloc(4096, 4096);
	EQUAL(rma2_register(c.port, c.value, VALUE, &c.region), RMA2_SUCCESS);
	EQUAL(rma2_connect(c.port, to->node, to->vpid, RMA2_CONN_DEFAULT, &c.store), RMA2_SUCCESS);
	for (unsigned i = 0; i < ROUNDS; i++)
		increment(&c, (i * 7 + seed) % KEYS);
	EQUAL(rma2_unregister(c.port, c.region), RMA2_SUCCESS);
	EQUAL(rma2_close(c.port), RMA2_SUCCESS);
	free(c.value);
}

// serve opens the store, says where it is, and waits until all clients have ended.
static void serve(void (*say)(const struct address *))
{
	RMA2_Port port;
	RMA2_Region *region;
	RMA2_Notification *n;
	uint32_t *values = aligned_alloc(4096, 4096), sum = 0;
	memset(values, 0, 4096);
	EQUAL(rma2_open(&port), RMA2_SUCCESS);
	EQUAL(rma2_register(port, values, KEYS * VALUE, &region), RMA2_SUCCESS);
	struct address a = {.node = rma2_get_nodeid(port), .vpid = rma2_get_vpid(port)};
	EQUAL(rma2_get_nla(region, 0, &a.values), RMA2_SUCCESS);
	say(&a);
	for (int i = 0; i < CLIENTS; i++) {
		EQUAL(rma2_noti_get_block(port, &n), RMA2_SUCCESS);
		EQUAL(rma2_noti_get_cmd(n), RMA2_ANY);
		EQUAL(rma2_noti_get_error(n), RMA2_ERROR_RESP | RMA2_ERROR_CMPL);
		EQUAL(rma2_noti_free(port, n), RMA2_SUCCESS);
	}
	for (unsigned k = 0; k < KEYS * VALUE / sizeof(*values); k++)
		sum += values[k];
	EQUAL(sum, CLIENTS * ROUNDS * VALUE / sizeof(*values));
	EQUAL(rma2_unregister(port, region), RMA2_SUCCESS);
	EQUAL(rma2_close(port), RMA2_SUCCESS);
	free(values);
}

static int pipes[2];

static void tell_processes(const struct address *a)
{
	for (int i = 0; i < CLIENTS; i++)
		EQUAL(write(pipes[1], a, sizeof(*a)), sizeof(*a));
}

static void processes(void)
{
	struct address a;
	int status;
	EQUAL(pipe(pipes), 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child > 0)
			continue;
		EQUAL(read(pipes[0], &a, sizeof(a)), sizeof(a));
		client(&a, i);
		_exit(0);
	}
	serve(tell_processes);
	while (wait(&status) > 0)
		EQUAL(status, 0);
}

static struct address where;
static pthread_t thread[CLIENTS];

static void *run(void *seed)
{
	client(&where, (unsigned)(uintptr_t)seed);
	return NULL;
}

static void start_threads(const struct address *a)
{
	where = *a;
	for (uintptr_t i = 0; i < CLIENTS; i++)
		EQUAL(pthread_create(&thread[i], NULL, run, (void *)i), 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (strcmp(argv[1], "processes") == 0) {
		processes();
		return 0;
	}
	serve(start_threads);
	for (int i = 0; i < CLIENTS; i++)
		EQUAL(pthread_join(thread[i], NULL), 0);
	return 0;
}

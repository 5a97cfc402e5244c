// frames.c: frames by PUT, as pscom's plugin extoll has them: 16 buffers of 4 KiB, a tail of
// 8 bytes at the end of each, and tokens for buffers that are free again. It needs a node
// (EXN_PORTS).
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "../include/rma2.h"
#include "check.h"

enum { BUFFER = 4096, BUFFERS = 16, TAIL = 8, PAYLOAD = BUFFER - TAIL, REFRESH = BUFFERS - 6 };

// tail is written last: its magic says that the frame is there.
struct tail {
	uint16_t tokens, payload;
	uint32_t magic;
};

// end is one of a connection, with buffers of its own to send from and to receive in.
struct end {
	RMA2_Port port;
	RMA2_Handle peer;
	RMA2_Region *out_region, *in_region;
	RMA2_NLA theirs; // the peer's buffers
	char *out, *in;
	unsigned sent, received, credits, owed;
};

static void end_open(struct end *e)
{
	*e = (struct end){.credits = BUFFERS};
	EQUAL(rma2_open(&e->port), RMA2_SUCCESS);
	e->out = aligned_alloc(BUFFER, BUFFERS * BUFFER);
	e->in = aligned_alloc(BUFFER, BUFFERS * BUFFER);
	memset(e->in, 0, BUFFERS * BUFFER);
	EQUAL(rma2_register(e->port, e->out, BUFFERS * BUFFER, &e->out_region), RMA2_SUCCESS);
	EQUAL(rma2_register(e->port, e->in, BUFFERS * BUFFER, &e->in_region), RMA2_SUCCESS);
}

static void end_connect(struct end *e, const struct end *to)
{
	EQUAL(rma2_get_nla(to->in_region, 0, &e->theirs), RMA2_SUCCESS);
	EQUAL(rma2_connect(e->port, rma2_get_nodeid(to->port), rma2_get_vpid(to->port), RMA2_CONN_DEFAULT, &e->peer), RMA2_SUCCESS);
}

static void end_close(struct end *e)
{
	EQUAL(rma2_unregister(e->port, e->out_region), RMA2_SUCCESS);
	EQUAL(rma2_unregister(e->port, e->in_region), RMA2_SUCCESS);
	EQUAL(rma2_close(e->port), RMA2_SUCCESS);
	free(e->out);
	free(e->in);
}

// whole is the size of a frame with its tail: cache lines.
static unsigned whole(unsigned payload)
{
	return (payload + TAIL + 63) & ~63u;
}

// give sends a frame, of any byte. False: it is busy. The last token is for a frame that has
// tokens.
static bool give(struct end *e, unsigned payload, char byte)
{
	if (e->credits < 1 || (e->credits < 2 && e->owed == 0))
		return false;
	unsigned slot = e->sent % BUFFERS, size = whole(payload);
	char *frame = e->out + slot * BUFFER;
	memset(frame, byte, size);
	*(struct tail *)(frame + size - TAIL) = (struct tail){(uint16_t)e->owed, (uint16_t)payload, 1};
	EQUAL(rma2_post_put_bt(e->port, e->peer, e->out_region, slot * BUFFER, size, e->theirs + (slot + 1) * BUFFER - size,
			       RMA2_NO_NOTIFICATION, RMA2_CMD_DEFAULT), RMA2_SUCCESS);
	e->owed = 0;
	e->credits--;
	e->sent++;
	return true;
}

// take takes a frame. False: there is none.
static bool take(struct end *e, unsigned *payload, char byte)
{
	struct tail *t = (struct tail *)(e->in + (e->received % BUFFERS) * BUFFER + PAYLOAD);
	if (__atomic_load_n(&t->magic, __ATOMIC_ACQUIRE) == 0)
		return false;
	*payload = t->payload;
	e->credits += t->tokens;
	const char *data = (char *)(t + 1) - whole(t->payload);
	for (unsigned i = 0; i < t->payload; i++)
		CHECK(data[i] == byte);
	__atomic_store_n(&t->magic, 0, __ATOMIC_RELAXED);
	e->received++;
	e->owed++;
	return true;
}

// The tail of a frame, whatever its length, is at byte 4088 of the buffer, and nothing before the
// frame is touched.
static void places(void)
{
	static const struct {
		unsigned payload, begin;
	} cases[] = {{0, 4032}, {1, 4032}, {56, 4032}, {57, 3968}, {1000, 3072}, {PAYLOAD, 0}};
	struct end a, b;
	end_open(&a);
	end_open(&b);
	end_connect(&a, &b);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *buffer = b.in + i * BUFFER;
		a.owed = i;
		memset(buffer, '.', PAYLOAD);
		CHECK(give(&a, cases[i].payload, 'x'));
		CHECK(memcmp(buffer + 4088, &(struct tail){(uint16_t)i, (uint16_t)cases[i].payload, 1}, TAIL) == 0);
		for (unsigned k = 0; k < PAYLOAD; k++)
			CHECK(buffer[k] == (k < cases[i].begin ? '.' : 'x'));
		unsigned got;
		CHECK(take(&b, &got, 'x') && got == cases[i].payload);
	}
	end_close(&a);
	end_close(&b);
}

// Without acknowledgement 15 frames go, 16 if the last one has tokens, and never a 17th.
static void busy(void)
{
	struct end a, b;
	unsigned got;
	end_open(&a);
	end_open(&b);
	end_connect(&a, &b);
	end_connect(&b, &a);
	for (int i = 0; i < 15; i++)
		CHECK(give(&a, 64, 'y'));
	CHECK(!give(&a, 64, 'y'));
	a.owed = 1;
	CHECK(give(&a, 64, 'y'));
	a.owed = 1;
	CHECK(!give(&a, 64, 'y')); // the 17th
	EQUAL(a.sent, BUFFERS);
	for (int i = 0; i < BUFFERS; i++)
		CHECK(take(&b, &got, 'y'));
	CHECK(!take(&b, &got, 'y'));
	CHECK(give(&b, 0, 0)); // an empty frame with tokens for all
	CHECK(take(&a, &got, 0) && got == 0);
	EQUAL(a.credits, BUFFERS);
	end_close(&a);
	end_close(&b);
}

enum { FRAMES = 1000 };

static unsigned length(unsigned i) { return i * 2654435761u % (PAYLOAD + 1); }

static void *receiver(void *arg)
{
	struct end *e = arg;
	for (unsigned i = 0, got; i < FRAMES;) {
		if (take(e, &got, (char)i)) {
			EQUAL(got, length(i));
			i++;
		} else {
			sched_yield();
		}
		if (e->owed >= REFRESH)
			(void)give(e, 0, 0);
	}
	return NULL;
}

// Who polls on the tail of a frame finds all of it.
static void stream(void)
{
	struct end a, b;
	unsigned got;
	pthread_t other;
	end_open(&a);
	end_open(&b);
	end_connect(&a, &b);
	end_connect(&b, &a);
	EQUAL(pthread_create(&other, NULL, receiver, &b), 0);
	for (unsigned i = 0; i < FRAMES;) {
		if (give(&a, length(i), (char)i)) {
			i++;
			continue;
		}
		if (take(&a, &got, 0))
			EQUAL(got, 0);
		else
			sched_yield();
	}
	EQUAL(pthread_join(other, NULL), 0);
	end_close(&a);
	end_close(&b);
}

int main(void)
{
	places();
	busy();
	stream();
	return 0;
}

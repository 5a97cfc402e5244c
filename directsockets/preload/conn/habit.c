/* The habit of a process: how long its connections last (SPEC 5.1).
 *
 * To offer a segment costs a client as much as some hundred small requests on TCP, and nothing
 * tells at its second send how many will follow. The connections before it do: while those that
 * were offered a segment end early, the next ones are offered theirs later, step by step, up to 128
 * sends and 1 MiB; once they last, earlier again. */
#include "conn/inner.h"

enum {
	EARLY_ENDS = 4, /* for a step, */
	STEPS = 6,      /* each of which doubles what it takes to be offered a segment */
	LASTED_SENDS = 128,
	LASTED_BYTES = 1 << 20,
};

static unsigned ends; /* early ones, less EARLY_ENDS for each connection that lasted */

bool ds_worth(uint64_t sends, uint64_t moved)
{
	unsigned steps = ds_config.fixed ? 0 : DS_GET(ends) / EARLY_ENDS;

	return sends >= (uint64_t)ds_config.sends << steps || moved >= ds_config.bytes << steps;
}

void ds_habit(const struct ds_sock *s)
{
	unsigned n = DS_GET(ends);

	if (s->side == 1 || !ds_has_segment(s))
		return;
	const struct ds_tx *tx = &s->sh->tx;
	const struct ds_rx *rx = &s->sh->rx;
	/* Bytes in a ring count, so that a direction of few sends does. */
	if (s->sends + tx->count >= LASTED_SENDS || s->moved + tx->put + rx->pos[rx->cur & 1].freed >= LASTED_BYTES)
		n = n > EARLY_ENDS ? n - EARLY_ENDS : 0;
	else if (n < EARLY_ENDS * STEPS)
		n++;
	DS_SET(ends, n);
}

// transfer.c: copies between this port's memory and a peer's.
#include "command.h"

// store_part stores n bytes, all within an aligned word of 8, at once: a reader that polls sees
// all of them or none, and concurrent changes elsewhere in the word stay.
static void store_part(uint8_t *to, const uint8_t *from, uint32_t n)
{
	unsigned off = (uintptr_t)to & 7;
	uint64_t *at = (uint64_t *)(to - off), now = __atomic_load_n(at, __ATOMIC_RELAXED), word;
	do {
		word = now;
		memcpy((uint8_t *)&word + off, from, n);
	} while (!__atomic_compare_exchange_n(at, &now, word, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

// copy_in_order copies to a peer's memory. A reader that polls on the last word and sees it sees
// all the others, since the hardware's packets arrive in order.
static void copy_in_order(uint8_t *to, const uint8_t *from, uint32_t n)
{
	if (n < 8 && ((uintptr_t)to & 7) + n <= 8) {
		store_part(to, from, n);
		return;
	}
	uint32_t tail = n >= 8 && ((uintptr_t)(to + n) & 7) == 0 ? 8 : 0;
	memcpy(to, from, n - tail);
	if (tail == 0) {
		__atomic_thread_fence(__ATOMIC_RELEASE);
		return;
	}
	uint64_t word;
	memcpy(&word, from + n - 8, 8);
	__atomic_store_n((uint64_t *)(to + n - 8), word, __ATOMIC_RELEASE);
}

bool rma_reachable(const struct exn_grant *g, uint64_t nla, uint32_t size, bool put)
{
	uint32_t run;
	for (; size > 0; size -= run, nla += run)
		if (rma_remote(g, nla, size, put, &run) == NULL && !rma_in_place(g, nla, size, &run))
			return false;
	return true;
}

// in_use counts an operation on a peer's memory that its owner may take back: 1 when it begins,
// -1 when it ends.
static void in_use(const struct exn_grant *g, uint64_t nla, uint64_t count)
{
	if (nla >> EXN_GENERATION != 0)
		__atomic_fetch_add(exn_flow_word(&g->out, EXN_FLOW_BUSY), count, __ATOMIC_SEQ_CST);
}

// by_node is copy for pages that stay in the peer's program: the peer's node reads and writes
// them, through the window of this port's memory.
static bool by_node(RMA2_Port e, const struct exn_grant *g, uint8_t *mine, uint64_t nla, uint32_t size, bool put)
{
	uint8_t *window = e->port.memory + EXN_WINDOW;
	for (uint32_t n; size > 0; size -= n, nla += n, mine += n) {
		n = size < EXN_WINDOW_SIZE ? size : EXN_WINDOW_SIZE;
		if (put)
			memcpy(window, mine, n);
		if (!exn_port_transfer(&e->port, g, nla, n, put))
			return false;
		if (!put)
			memcpy(mine, window, n);
	}
	return true;
}

// copy copies between this port's memory and a peer's. It returns false if the peer has taken its
// memory back.
static bool copy(RMA2_Port e, const struct exn_grant *g, uint8_t *mine, uint64_t nla, uint32_t size, bool put)
{
	uint32_t run;
	for (; size > 0; size -= run, nla += run, mine += run) {
		uint8_t *theirs = rma_remote(g, nla, size, put, &run);
		if (theirs == NULL && rma_in_place(g, nla, size, &run)) {
			if (!by_node(e, g, mine, nla, run, put))
				return false;
			continue;
		}
		if (theirs == NULL)
			return false;
		if (put)
			copy_in_order(theirs, mine, run);
		else
			memcpy(mine, theirs, run);
	}
	return true;
}

bool rma_move(RMA2_Port e, const struct exn_grant *g, uint64_t local, uint64_t nla, uint32_t size, bool put)
{
	uint32_t run;
	bool ok = true;
	in_use(g, nla, 1);
	for (uint64_t at = nla; ok && size > 0; size -= run, local += run, at += run) {
		uint8_t *mine = rma_local(e, local, size, &run);
		ok = copy(e, g, mine, at, run, put);
	}
	in_use(g, nla, (uint64_t)-1);
	return ok;
}

bool rma_present(RMA2_Port e, uint64_t local, uint32_t size)
{
	uint32_t run;
	for (; size > 0; size -= run, local += run)
		if (rma_local(e, local, size, &run) == NULL)
			return false;
	return true;
}

bool rma_store(RMA2_Port e, const struct exn_grant *g, const struct command *o)
{
	uint64_t value = o->read;
	in_use(g, o->write, 1);
	bool ok = copy(e, g, (uint8_t *)&value, o->write, o->size, true);
	in_use(g, o->write, (uint64_t)-1);
	return ok;
}

// now is rma2_get_now and rma2_put_now.
static RMA2_ERROR now(RMA2_Port e, RMA2_Handle c, uint8_t *mine, size_t size, uint64_t nla, bool put)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	if (c == NULL || c->grant == NULL)
		return RMA2_ERR_INV_HANDLE;
	const struct exn_grant *g = c->grant;
	if (g->far)
		return RMA2_ERR_NOT_YET;
	if (size > EXN_PAGES * EXN_PAGE)
		return RMA2_ERR_INV_VALUE;
	in_use(g, nla, 1);
	bool ok = copy(e, g, mine, nla, (uint32_t)size, put);
	in_use(g, nla, (uint64_t)-1);
	if (ok)
		exn_count(&e->port, put ? EXN_PUT_BYTES : EXN_GET_BYTES, (int64_t)size);
	return ok ? RMA2_SUCCESS : RMA2_ERR_NO_TABLE;
}

API RMA2_ERROR rma2_get_now(RMA2_Port e, RMA2_Handle c, void *to, size_t size, RMA2_NLA from)
{
	return now(e, c, to, size, from, false);
}

API RMA2_ERROR rma2_put_now(RMA2_Port e, RMA2_Handle c, const void *from, size_t size, RMA2_NLA to)
{
	return now(e, c, (uint8_t *)from, size, to, true);
}

API int rma2_descriptor(RMA2_Port e)
{
	return e->port.sock;
}

API int rma2_bell(RMA2_Port e)
{
	return e->port.bell;
}

API int rma2_arm(RMA2_Port e)
{
	return e->waiting.next == &e->waiting && exn_port_arm(&e->port);
}

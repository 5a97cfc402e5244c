/* The order of what a client sends on several connections to one server, of which some are on TCP (SPEC 2.5).
 *
 * The kernel does not say when bytes came. So a process notes its sends on TCP, for each server; and before a direct send
 * to the same server it says in that segment's control block what has changed since. Where nothing is sent on TCP a direct
 * send compares two words. What does not fit is a time before which anything may have been sent.
 */
#include "conn/inner.h"

#include <string.h>

enum {
	PEERS = 16,
	PORT = 0xffff, /* the port's bits, or NONE: in `lost` */
	NONE = 1,
	COARSE = 4, /* log2 of the ticks of a step, */
	STEPS = 48, /* and bits of their number */
};

static struct ds_peer peers[PEERS];

void ds_peer_get(struct ds_sock *s)
{
	struct ds_peer *p, *spare = NULL;

	for (p = peers; p < peers + PEERS; p++) {
		if (p->users && p->port == s->info.port[1] && !memcmp(p->addr, s->info.addr[1], sizeof p->addr))
			break;
		if (!p->users)
			spare = p;
	}
	if (p == peers + PEERS) {
		if (!spare)
			return;
		p = spare;
		memcpy(p->addr, s->info.addr[1], sizeof p->addr);
		p->port = s->info.port[1];
		memset(p->sent, 0, sizeof p->sent);
		p->lost = NONE;
		DS_SET(p->told, false);
	}
	p->users++;
	s->noted = DS_GET(p->notes) - 1;
	s->peer = p;
}

void ds_peer_put(struct ds_sock *s)
{
	if (s->peer)
		s->peer->users--;
	s->peer = NULL;
}

void ds_sent_tcp(struct ds_sock *s)
{
	struct ds_peer *p = s->peer;

	if (!p || !DS_GET(p->told))
		return;
	uint16_t port = s->info.port[0];
	uint64_t old = 0;
	int at = 0;

	for (int i = 0; i < DS_SENT; i++) {
		uint64_t word = DS_GET(p->sent[i]);
		if (i == 0 || (word & PORT) == port || word < old) {
			old = word;
			at = i;
		}
		if ((word & PORT) == port)
			break;
	}
	old = __atomic_exchange_n(&p->sent[at], ds_ticks() >> COARSE << 16 | port, __ATOMIC_ACQ_REL);
	if (old && (old & PORT) != port)
		__atomic_store_n(&p->lost, (old | PORT) ^ PORT ^ NONE, __ATOMIC_RELEASE);
	__atomic_fetch_add(&p->notes, 1, __ATOMIC_RELEASE);
}

void ds_sent_tell(struct ds_sock *s)
{
	struct ds_peer *p = s->peer;

	s->noted = __atomic_load_n(&p->notes, __ATOMIC_ACQUIRE);
	DS_SET(p->told, true);
	ds_seg_sent(&s->seg, p->sent, DS_GET(p->lost));
}

/* The time of a word, as ds_ticks told it: now at the latest; 0: it has none. */
static uint64_t time_of(uint64_t word)
{
	if (!(word >> 16))
		return 0;
	uint64_t now = ds_ticks(), age = ((now >> COARSE) - (word >> 16)) & ((1ull << STEPS) - 1);

	return now - (age << COARSE);
}

uint64_t ds_sent_before(struct ds_sock *direct, const struct ds_sock *tcp)
{
	const struct ds_info *a = &direct->info, *b = &tcp->info;
	uint64_t sent, lost, read = DS_GET(tcp->read);

	if (direct->side != 1 || tcp->side != 1 || !direct->sh || !ds_has_segment(direct) || a->port[1] != b->port[1] ||
	    memcmp(a->addr, b->addr, sizeof a->addr) || !ds_seg_peer_sent(&direct->seg, b->port[0], &sent, &lost))
		return DS_UNSAID;
	uint64_t t = time_of(sent);
	if (t > read)
		return t;
	return sent || time_of(lost) <= read ? DS_AFTER : DS_UNSAID;
}

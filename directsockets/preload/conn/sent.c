/* The order of what a process sends on several connections to another (SPEC 2.5).
 *
 * The kernel does not say when bytes arrived. So a process notes its sends on TCP for each server,
 * and before a direct send to the same server it writes to that segment's control block what has
 * changed. It also writes there that it has rung bells: a receiver that finds the message then asks
 * the kernel about them. While nothing is sent on TCP and no bell is rung, a direct send compares
 * four words. Sends on TCP before the first direct send to a server are not noted.
 */
#include "conn/inner.h"

#include <string.h>

/* A word: the client's port; whether nothing was sent from there since it was connected; when
 * something was, in steps of ticks. */
enum {
	PEERS = 16,
	PORT = 0xffff,
	MADE = 1 << 16,
	TIME = 17,
	COARSE = 5, /* log2 of the ticks of a step, */
	STEPS = 47, /* and bits of their number */
};

static struct ds_peer peers[PEERS];

bool ds_telling;

/* A word of s as of now. */
static uint64_t word_of(const struct ds_sock *s)
{
	return ds_ticks() >> COARSE << TIME | s->info.port[s->side];
}

/* True if word (SPEC 2.5) is about the port of s. No lock. */
static bool is_of(uint64_t word, const struct ds_sock *s)
{
	return (word & PORT) == s->info.port[s->side];
}

void ds_peer_made(struct ds_sock *s)
{
	struct ds_peer *p = s->peer;

	for (int i = 0; i < DS_SENT; i++) {
		uint64_t old = DS_GET(p->sent[i]);
		if (old && !is_of(old, s))
			continue;
		if (__atomic_compare_exchange_n(&p->sent[i], &old, word_of(s) | MADE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			break;
	}
	__atomic_fetch_add(&p->notes, 1, __ATOMIC_RELEASE);
}

/* Is p the server of s? */
static bool is_server(const struct ds_peer *p, const struct ds_sock *s)
{
	return p->port == s->info.port[1] && !memcmp(p->addr, s->info.addr[1], sizeof p->addr);
}

/* The place of the server of s, or an unused one for it; NULL: there is none. */
static struct ds_peer *find(const struct ds_sock *s)
{
	static struct ds_peer *last = peers;
	struct ds_peer *p, *spare = NULL;

	if (is_server(last, s))
		return last;
	for (p = peers; p < peers + PEERS && !is_server(p, s); p++)
		if (!p->users)
			spare = p;
	if (p == peers + PEERS) {
		if (!spare)
			return NULL;
		p = spare;
		memcpy(p->addr, s->info.addr[1], sizeof p->addr);
		p->port = s->info.port[1];
	}
	last = p;
	return p;
}

bool ds_peer_get(struct ds_sock *s)
{
	struct ds_peer *p = find(s);

	if (!p)
		return false;
	if (!p->users && p->told) { /* notes of connections that have all gone */
		memset(p->sent, 0, sizeof p->sent);
		DS_SET(p->told, false);
	}
	p->users++;
	s->noted = DS_GET(p->notes) - 1;
	s->peer = p;
	return DS_GET(p->told);
}

void ds_peer_put(struct ds_sock *s)
{
	struct ds_peer *p = s->peer;

	if (!p)
		return;
	for (int i = 0; DS_GET(p->told) && i < DS_SENT; i++) {
		uint64_t old = DS_GET(p->sent[i]);
		if (old && is_of(old, s))
			__atomic_compare_exchange_n(&p->sent[i], &old, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
	p->users--;
	s->peer = NULL;
}

void ds_peer_fork_child(void)
{
	for (struct ds_peer *p = peers; p < peers + PEERS; p++)
		if (p->users) {
			memset(p->sent, 0, sizeof p->sent); /* the parent may send on these, too */
			p->notes++;
		}
}

void ds_sent_tcp(struct ds_sock *s)
{
	struct ds_peer *p = s->peer;
	uint64_t old = 0;
	int at = 0;

	if (!p || !DS_GET(p->told))
		return;
	for (int i = 0; i < DS_SENT; i++) {
		uint64_t word = DS_GET(p->sent[i]);
		if (i == 0 || is_of(word, s) || word < old) {
			old = word;
			at = i;
		}
		if (is_of(word, s))
			break;
	}
	__atomic_store_n(&p->sent[at], word_of(s), __ATOMIC_RELEASE);
	__atomic_fetch_add(&p->notes, 1, __ATOMIC_RELEASE);
}

void ds_sent_tell(struct ds_sock *s)
{
	static const uint64_t nothing[DS_SENT];
	struct ds_peer *p = s->peer;

	s->rang = __atomic_load_n(&ds_rings, __ATOMIC_ACQUIRE);
	if (p) {
		DS_SET(ds_telling, true);
		DS_SET(p->told, true);
		s->noted = __atomic_load_n(&p->notes, __ATOMIC_ACQUIRE);
	}
	ds_seg_sent(&s->seg, p ? p->sent : nothing, s->rang);
}

/* The time of a word of the peer's, as ds_ticks told it; 0 if it is none, or in the future. */
static uint64_t time_of(uint64_t word)
{
	uint64_t now = ds_ticks(), age = (((now >> COARSE) - (word >> TIME)) & ((1ull << STEPS) - 1)) << COARSE;

	return age < now ? now - age : 0;
}

uint64_t ds_sent_before(struct ds_sock *direct, const struct ds_sock *tcp)
{
	const struct ds_info *a = &direct->info, *b = &tcp->info;

	if (direct->side != 1 || tcp->side != 1 || !direct->sh || !ds_has_segment(direct) || a->port[1] != b->port[1] ||
	    memcmp(a->addr[0], b->addr[0], sizeof a->addr[0]) ||
	    memcmp(a->addr[1], b->addr[1], sizeof a->addr[1]))
		return DS_UNSAID;
	uint64_t word = ds_seg_peer_sent(&direct->seg, b->port[0]);
	if (!word)
		return DS_UNSAID;
	uint64_t t = word & MADE ? 0 : time_of(word);
	return t > DS_GET(tcp->read) ? t : DS_AFTER;
}

bool ds_has_rung(struct ds_sock *s)
{
	if (!s->sh || !ds_has_segment(s))
		return false;
	uint64_t rings = ds_seg_peer_rings(&s->seg);
	if (rings == DS_GET(s->rings))
		return false;
	DS_SET(s->rings, rings);
	return true;
}

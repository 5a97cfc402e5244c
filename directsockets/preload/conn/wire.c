/* The broker's messages and the bucket of a connection (SPEC 6, 6.2). */
#include "conn/broker.h"

#include <string.h>

/* Lengths of the bodies, by type. */
static const uint8_t body[] = {
	[DS_HELLO] = 16, [DS_WELCOME] = 8, [DS_LISTEN] = 40, [DS_UNLISTEN] = 0, [DS_OFFER] = 56,
	[DS_WITHDRAW] = 16, [DS_CLAIM] = 40, [DS_GRANT] = 52, [DS_NO_OFFER] = 0, [DS_REFUSED] = 1,
	[DS_FLOW] = 60,
};

enum { ENDS = 36 };

/* The ends of the connection, as GRANT, FLOW, OFFER and, without the nonce, LISTEN and CLAIM have
 * them. */
static void put_ends(uint8_t *p, const struct ds_info *i)
{
	memcpy(p, i->addr, 32);
	memcpy(p + 32, i->port, 4);
}

/* Reads the ends of a connection as a message has them, 36 bytes at p. No lock. */
static void get_ends(struct ds_info *i, const uint8_t *p)
{
	memcpy(i->addr, p, 32);
	memcpy(i->port, p + 32, 4);
}

size_t ds_message_put(uint8_t *b, const struct ds_message *m)
{
	uint16_t len = (uint16_t)(8 + body[m->type]);
	uint8_t *p = b + 8;

	memset(b, 0, len);
	b[0] = m->type;
	b[1] = m->version ? m->version : DS_OLDEST;
	memcpy(b + 2, &len, 2);
	memcpy(b + 4, &m->id, 4);
	switch (m->type) {
	case DS_HELLO:
		memcpy(p, m->program, 16);
		break;
	case DS_WELCOME:
		memcpy(p, &m->node, 2);
		memcpy(p + 4, &m->features, 4);
		break;
	case DS_LISTEN:
	case DS_CLAIM:
		put_ends(p, &m->info);
		memcpy(p + ENDS, &m->interface, 4);
		break;
	case DS_OFFER:
		memcpy(p + 16 + ENDS, &m->interface, 4);
		/* fall through */
	case DS_GRANT:
	case DS_FLOW:
		if (m->type == DS_FLOW)
			memcpy(p + 16 + ENDS, &m->cookie, 8);
		put_ends(p + 16, &m->info);
		/* fall through */
	case DS_WITHDRAW:
		memcpy(p, m->info.nonce, 16);
		break;
	case DS_REFUSED:
		p[0] = m->reason;
		break;
	}
	return len;
}

bool ds_message_get(struct ds_message *m, const uint8_t *b, size_t n)
{
	const uint8_t *p = b + 8;
	uint16_t len;

	if (n < 8)
		return false;
	memcpy(&len, b + 2, 2);
	if (b[0] < DS_HELLO || b[0] > DS_FLOW || b[1] < DS_OLDEST || b[1] > DS_NEWEST || len != n || n != 8u + body[b[0]])
		return false;
	memset(m, 0, sizeof *m);
	m->type = b[0];
	m->version = b[1];
	memcpy(&m->id, b + 4, 4);
	switch (m->type) {
	case DS_HELLO:
		memcpy(m->program, p, 16);
		break;
	case DS_WELCOME:
		memcpy(&m->node, p, 2);
		memcpy(&m->features, p + 4, 4);
		break;
	case DS_LISTEN:
	case DS_CLAIM:
		get_ends(&m->info, p);
		memcpy(&m->interface, p + ENDS, 4);
		break;
	case DS_OFFER:
		memcpy(&m->interface, p + 16 + ENDS, 4);
		/* fall through */
	case DS_GRANT:
	case DS_FLOW:
		if (m->type == DS_FLOW)
			memcpy(&m->cookie, p + 16 + ENDS, 8);
		get_ends(&m->info, p + 16);
		/* fall through */
	case DS_WITHDRAW:
		memcpy(m->info.nonce, p, 16);
		break;
	case DS_REFUSED:
		m->reason = p[0];
		return m->reason != 0;
	}
	return true;
}

uint32_t ds_bucket(const struct ds_info *info)
{
	uint8_t key[36];
	uint32_t h = 2166136261u;

	memcpy(key, info->addr, 32);
	memcpy(key + 32, info->port, 4);
	for (size_t i = 0; i < sizeof key; i++)
		h = (h ^ key[i]) * 16777619u;
	return h % 4096;
}

/* The settings of a process. */
#include "conn/dgram.h"
#include "conn/env.h"
#include "conn/inner.h"
#include "conn/rules.h"

#include <stdlib.h>

enum {
	SENDS = 2,     /* a client offers at its second send, */
	BYTES = 16384, /* or when so much has moved; see habit.c */
	SLOTS = 128,
	WELCOME_MS = 250,   /* how long the broker may take to greet; a test waits longer */
	MAX_SLOTS = 4096,   /* 512 KiB */
	MAX_RING = 4 << 20,
};

uint64_t ds_little = BYTES;
struct ds_config ds_config = {.sends = SENDS, .slots = SLOTS, .bytes = BYTES, .welcome = WELCOME_MS};

/* The number that the environment has for name, from low to high; other if there is none. */
static uint64_t number(const char *name, uint64_t other, uint64_t low, uint64_t high)
{
	const char *s = ds_env(name);
	char *end;

	if (!s || !*s)
		return other;
	uint64_t n = strtoull(s, &end, 10);
	return *end || n < low || n > high ? other : n;
}

bool ds_explains(void) { return number("EXNET_EXPLAIN", 0, 0, 1); }

unsigned ds_dg_eager;

void ds_dg_settings(void)
{
	static bool read;

	if (__atomic_exchange_n(&read, true, __ATOMIC_RELAXED) || number("EXNET_DS_SENDS", 2, 0, 1u << 30) != 0)
		return;
	DS_SET(ds_dg_eager, (unsigned)number("EXNET_DS_WAIT", 0, 0, 1000));
}

/* Tunable, for tests and those who measure: EXNET_DS_SENDS, _BYTES, _SLOTS, _RING, _WAIT, _WELCOME.
 * A server's: _MAX_SLOTS, _MAX_RING. */
bool ds_start(void)
{
	static bool started;

	if (started)
		return false;
	started = true;
	rules_init();
	uint64_t sends = number("EXNET_DS_SENDS", UINT64_MAX, 0, 1u << 30), bytes = number("EXNET_DS_BYTES", UINT64_MAX, 0, 1ull << 40);
	ds_config.fixed = sends != UINT64_MAX || bytes != UINT64_MAX;
	ds_config.sends = sends != UINT64_MAX ? (unsigned)sends : SENDS;
	ds_config.bytes = bytes != UINT64_MAX ? bytes : BYTES;
	ds_config.explain = ds_explains();
	ds_config.wait = (unsigned)number("EXNET_DS_WAIT", 0, 0, 1000);
	ds_little = ds_config.wait ? 0 : ds_config.bytes;
	ds_config.welcome = (unsigned)number("EXNET_DS_WELCOME", WELCOME_MS, 1, 60000);
	ds_config.slots = (unsigned)number("EXNET_DS_SLOTS", SLOTS, DS_MIN_SLOTS, DS_MAX_SLOTS);
	ds_config.ring = number("EXNET_DS_RING", 0, DS_MIN_RING, DS_MAX_RING);
	if (ds_config.slots & (ds_config.slots - 1))
		ds_config.slots = SLOTS;
	ds_config.ring &= ~4095ull;
	/* A process that makes larger ones accepts them, too. */
	ds_config.max_slots = ds_config.slots > MAX_SLOTS ? ds_config.slots : MAX_SLOTS;
	ds_config.max_ring = ds_config.ring > MAX_RING ? ds_config.ring : MAX_RING;
	ds_config.max_slots = (unsigned)number("EXNET_DS_MAX_SLOTS", ds_config.max_slots, 0, DS_MAX_SLOTS);
	ds_config.max_ring = number("EXNET_DS_MAX_RING", ds_config.max_ring, 0, DS_MAX_RING);
	/* A fence for each message is cheaper than a membarrier for each sleep, for all but
	 * programs that send tens of millions of messages a second. */
	ds_config.expedite = number("EXNET_DS_EXPEDITED", 0, 0, 1);
	ds_config.expedited = ds_config.expedite && ds_expedite();
	ds_ticks_us();
	return true;
}

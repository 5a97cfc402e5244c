/* The states of a socket and of its handle (SPEC 9.6), which nothing else changes. */
#include "conn/inner.h"

const struct ds_step ds_life_steps[] = {
	/* the socket */
	{CONN_ENDED, CONN_ON_SOCKET, CONN_NEW},
	{CONN_ENDED, CONN_ON_ACCEPT, CONN_UNCOUNTED},
	{CONN_NEW, CONN_ON_CONNECT, CONN_CONNECTING},
	{CONN_NEW, CONN_ON_DEFER, CONN_UNCOUNTED},
	{CONN_NEW, CONN_ON_INHERIT, CONN_KNOWN},
	{CONN_NEW, CONN_ON_GIVE_UP, CONN_PLAIN},
	{CONN_CONNECTING, CONN_ON_CONNECTED, CONN_SETTLING},
	{CONN_CONNECTING, CONN_ON_GIVE_UP, CONN_PLAIN},
	{CONN_UNCOUNTED, CONN_ON_CONNECTED, CONN_SETTLING},
	{CONN_UNCOUNTED, CONN_ON_GIVE_UP, CONN_PLAIN},
	{CONN_SETTLING, CONN_ON_HANDLE, CONN_KNOWN},
	{CONN_SETTLING, CONN_ON_NONE, CONN_PLAIN},
	{CONN_SETTLING, CONN_ON_GIVE_UP, CONN_UNWANTED},
	{CONN_SETTLING, CONN_ON_ABANDON, CONN_PLAIN},
	{CONN_UNWANTED, CONN_ON_HANDLE, CONN_KNOWN},
	{CONN_UNWANTED, CONN_ON_NONE, CONN_PLAIN},
	{CONN_UNWANTED, CONN_ON_ABANDON, CONN_PLAIN},
	{CONN_KNOWN, CONN_ON_FORGET, CONN_FORGOTTEN},
	/* the handle */
	{CONN_ENDED, CONN_ON_MAKE, CONN_EARLY},
	{CONN_ENDED, CONN_ON_EXCLUDE, CONN_PLAIN},
	{CONN_EARLY, CONN_ON_CLAIM, CONN_CLAIMED},
	{CONN_EARLY, CONN_ON_SEGMENT, CONN_OFFERED},
	{CONN_EARLY, CONN_ON_GIVE_UP, CONN_PLAIN},
	{CONN_EARLY, CONN_ON_LEAVE, CONN_LEFT},
	{CONN_CLAIMED, CONN_ON_NONE, CONN_EARLY},
	{CONN_CLAIMED, CONN_ON_GRANT, CONN_GRANTED},
	{CONN_CLAIMED, CONN_ON_GIVE_UP, CONN_PLAIN},
	{CONN_CLAIMED, CONN_ON_LEAVE, CONN_LEFT},
	{CONN_GRANTED, CONN_ON_SEGMENT, CONN_OFFERED},
	{CONN_GRANTED, CONN_ON_NONE, CONN_EARLY},
	{CONN_GRANTED, CONN_ON_GIVE_UP, CONN_PLAIN},
	{CONN_GRANTED, CONN_ON_LEAVE, CONN_LEFT},
	{CONN_OFFERED, CONN_ON_ATTACHED, CONN_UP},
	{CONN_OFFERED, CONN_ON_LEAVE, CONN_LEFT},
	{CONN_UP, CONN_ON_ATTACHED, CONN_UP},
	{CONN_UP, CONN_ON_LEAVE, CONN_LEFT},
	{CONN_PLAIN, CONN_ON_LEAVE, CONN_LEFT},
	/* both */
	{CONN_ANY, CONN_ON_END, CONN_ENDED},
	{CONN_NO_STEP, 0, 0},
};

const struct ds_step *ds_life_table = ds_life_steps; /* a test gives it others */

/* How often a handle was to make a step that there is not: a fault of this library, which tests
 * look for. */
uint32_t ds_life_missteps;

/* Moves *state; returns where it was, or CONN_NO_STEP: the table has no such step. */
static int move(uint8_t *state, enum conn_event what)
{
	uint8_t from = __atomic_load_n(state, __ATOMIC_ACQUIRE);
	int to;

	do {
		to = ds_leads(ds_life_table, from, what);
		if (to == CONN_NO_STEP)
			return CONN_NO_STEP;
	} while (!__atomic_compare_exchange_n(state, &from, (uint8_t)to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	return from;
}

int ds_life_on(struct ds_life *l, enum conn_event what) { return move(&l->state, what); }

void ds_on(struct ds_sock *s, enum conn_event what)
{
	if (move(&s->state, what) == CONN_NO_STEP)
		__atomic_add_fetch(&ds_life_missteps, 1, __ATOMIC_RELAXED);
}

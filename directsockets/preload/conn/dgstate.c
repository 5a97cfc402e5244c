/* The states of a flow's two ends, and of its set-up (SPEC 10.7 to 10.9), and what a program was
 * shown; nothing else changes them. */
#include "conn/dgram.h"
#include "conn/inner.h"

const struct ds_step ds_dg_out_steps[] = {
	{DG_OUT_KERNEL, DG_ON_OFFER, DG_OUT_OFFERED},
	{DG_OUT_KERNEL, DG_ON_CLOSE, DG_OUT_ENDED},
	{DG_OUT_OFFERED, DG_ON_ATTACHED, DG_OUT_UP},
	{DG_OUT_OFFERED, DG_ON_REFUSED, DG_OUT_KERNEL},
	{DG_OUT_OFFERED, DG_ON_GONE, DG_OUT_KERNEL},
	{DG_OUT_OFFERED, DG_ON_LEAVE, DG_OUT_KERNEL},
	{DG_OUT_UP, DG_ON_FULL, DG_OUT_STALLED},
	{DG_OUT_UP, DG_ON_MOVED, DG_OUT_KERNEL},
	{DG_OUT_UP, DG_ON_GONE, DG_OUT_KERNEL},
	{DG_OUT_UP, DG_ON_LEAVE, DG_OUT_KERNEL},
	{DG_OUT_STALLED, DG_ON_ROOM, DG_OUT_UP},
	{DG_OUT_STALLED, DG_ON_MOVED, DG_OUT_KERNEL},
	{DG_OUT_STALLED, DG_ON_GONE, DG_OUT_KERNEL},
	{DG_OUT_STALLED, DG_ON_LEAVE, DG_OUT_KERNEL},
	{DG_NO_STEP, 0, 0},
};

const struct ds_step ds_dg_in_steps[] = {
	{DG_IN_ARMED, DG_ON_RING, DG_IN_RUNG},
	{DG_IN_ARMED, DG_ON_WAKE, DG_IN_MEMORY},
	{DG_IN_ARMED, DG_ON_MOVED, DG_IN_DRAINING},
	{DG_IN_ARMED, DG_ON_CLOSE, DG_IN_DRAINING},
	{DG_IN_ARMED, DG_ON_DROP, DG_IN_ENDED},
	{DG_IN_RUNG, DG_ON_WAKE, DG_IN_MEMORY},
	{DG_IN_RUNG, DG_ON_EMPTY, DG_IN_ARMED},
	{DG_IN_RUNG, DG_ON_MOVED, DG_IN_DRAINING},
	{DG_IN_RUNG, DG_ON_CLOSE, DG_IN_DRAINING},
	{DG_IN_RUNG, DG_ON_DROP, DG_IN_ENDED},
	{DG_IN_MEMORY, DG_ON_ARM, DG_IN_RUNG},
	{DG_IN_MEMORY, DG_ON_MOVED, DG_IN_DRAINING},
	{DG_IN_MEMORY, DG_ON_CLOSE, DG_IN_DRAINING},
	{DG_IN_MEMORY, DG_ON_DROP, DG_IN_ENDED},
	{DG_IN_DRAINING, DG_ON_EMPTY, DG_IN_ENDED},
	{DG_IN_DRAINING, DG_ON_DROP, DG_IN_ENDED},
	{DG_NO_STEP, 0, 0},
};

const struct ds_step ds_dg_setup_steps[] = {
	{DG_SETUP_QUIET, DG_ON_LISTEN, DG_SETUP_ANNOUNCED},
	{DG_SETUP_QUIET, DG_ON_EXCLUDE, DG_SETUP_EXCLUDED},
	{DG_SETUP_ANNOUNCED, DG_ON_CLAIM, DG_SETUP_CLAIMING},
	{DG_SETUP_ANNOUNCED, DG_ON_REFUSED, DG_SETUP_QUIET},
	{DG_SETUP_ANNOUNCED, DG_ON_FORGET, DG_SETUP_QUIET},
	{DG_SETUP_CLAIMING, DG_ON_GRANT, DG_SETUP_ANNOUNCED},
	{DG_SETUP_CLAIMING, DG_ON_NONE, DG_SETUP_ANNOUNCED},
	{DG_SETUP_CLAIMING, DG_ON_REFUSED, DG_SETUP_QUIET},
	{DG_SETUP_CLAIMING, DG_ON_FORGET, DG_SETUP_QUIET},
	{DG_SETUP_EXCLUDED, DG_ON_FORGET, DG_SETUP_QUIET},
	{DG_NO_STEP, 0, 0},
};

/* How often a step was to be made that there is not: a fault of this library, which tests look
 * for. */
uint32_t ds_dg_missteps;

/* Where t leads from a state; DG_NO_STEP: nowhere. */
static int next(const struct ds_step *t, int from, int what)
{
	int to = ds_leads(t, from, what);

	if (to == DG_NO_STEP)
		__atomic_add_fetch(&ds_dg_missteps, 1, __ATOMIC_RELAXED);
	return to;
}

void ds_dg_setup_on(struct ds_dgram *d, int what)
{
	int to = next(ds_dg_setup_steps, d->setup, what);

	if (to != DG_NO_STEP)
		DS_SET(d->setup, (uint8_t)to);
}

void ds_dg_out_on(struct ds_dg_out *o, int what)
{
	int to = next(ds_dg_out_steps, o->state, what);

	DS_SET(o->state, (uint8_t)(to == DG_NO_STEP ? DG_OUT_KERNEL : to)); /* no datagram depends on it then */
}

void ds_dg_enqueue(struct ds_dg_set *s)
{
	struct ds_dg_set **live = __atomic_load_n(&s->live, __ATOMIC_ACQUIRE);

	if (!live || s->queued)
		return;
	s->queued = true;
	s->next = DS_GET(*live);
	while (!__atomic_compare_exchange_n(live, &s->next, s, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

/* Is a flow in the state looked at: is it in its socket's list? */
static bool looked(int state) { return state == DG_IN_RUNG || state == DG_IN_MEMORY || state == DG_IN_DRAINING; }

/* Takes f out of the list of d. */
static void unlist(struct ds_dgram *d, const struct ds_dg_in *f)
{
	for (unsigned i = 0; i < d->nlisted; i++)
		if (d->list[i] == f) {
			d->list[i] = d->list[d->nlisted - 1];
			DS_SET(d->nlisted, d->nlisted - 1);
			return;
		}
}

void ds_dg_in_on(struct ds_dgram *d, struct ds_dg_in *f, int what)
{
	int from = f->state, to = next(ds_dg_in_steps, from, what);

	if (to == DG_NO_STEP)
		return;
	f->state = (uint8_t)to;
	if (to == DG_IN_ENDED)
		ds_dg_gave(d, f);
	if ((to == DG_IN_MEMORY) != (from == DG_IN_MEMORY))
		DS_SET(d->awake, d->awake + (to == DG_IN_MEMORY ? 1 : -1u));
	if (looked(to) && !looked(from)) {
		d->list[d->nlisted] = f;
		DS_SET(d->nlisted, d->nlisted + 1);
		for (int i = 0; i < DS_DG_SETS; i++)
			ds_dg_enqueue(&d->sets[i]);
	} else if (!looked(to) && looked(from)) {
		unlist(d, f);
	}
}

void ds_dg_show(struct ds_dgram *d, struct ds_dg_in *f)
{
	d->shown = f ? DG_SHOWN_MEMORY : DG_SHOWN_KERNEL;
	d->shown_in = f;
}

void ds_dg_gave(struct ds_dgram *d, const struct ds_dg_in *f)
{
	if (d->shown != (f ? DG_SHOWN_MEMORY : DG_SHOWN_KERNEL) || d->shown_in != f)
		return;
	d->shown = DG_SHOWN_NOTHING;
	d->shown_in = NULL;
}

struct ds_dg_in *ds_dg_shown(struct ds_dgram *d)
{
	if (d->shown != DG_SHOWN_MEMORY)
		return NULL;
	if (!ds_dg_there(&d->shown_in->seg)) /* its sender has changed it */
		ds_dg_gave(d, d->shown_in);
	return d->shown_in;
}

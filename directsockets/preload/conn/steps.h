/* Tables of states: which event leads from which state to which next one. Who owns a state looks
 * its next one up here, and nobody else writes it. */
#ifndef DS_STEPS_H
#define DS_STEPS_H

#include <stdint.h>

enum {
	DS_ANY = 0xfe,	   /* as from: each state */
	DS_NO_STEP = 0xff, /* as from: the table's end */
};

struct ds_step {
	uint8_t from, what, to;
};

/* Where t leads from a state; DS_NO_STEP: nowhere. */
static inline int ds_leads(const struct ds_step *t, int from, int what)
{
	while (t->from != DS_NO_STEP && ((t->from != from && t->from != DS_ANY) || t->what != what))
		t++;
	return t->from == DS_NO_STEP ? DS_NO_STEP : t->to;
}

#endif

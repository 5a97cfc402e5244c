// A yield that others kept for long is not tried again soon: it cost its thread as much as many
// short ones (conn/spin.c).
#include "harness.h"

#include "conn/inner.h"

// The sleeps without yields that follow a yield in vain, which others kept for so many us too long.
static unsigned pause_after(struct ds_spinner *of, unsigned late)
{
	struct ds_spin p = {.of = of, .yields = 1, .late = late, .crowded = true, .start = ds_ticks()};

	p.end = p.start;
	ds_spin_end(&p, NULL, false);
	return of->pause;
}

int main(void)
{
	struct ds_spinner of = {0};

	CHECK(pause_after(&of, 0) == 0, "one that cost little pauses for %u", of.pause);
	unsigned moment = pause_after(&of, 1500);
	CHECK(moment > 0 && moment <= 4, "one of 1.5 ms pauses for %u", moment);
	of = (struct ds_spinner){0};
	unsigned tenth = pause_after(&of, 100000), again = of.again;
	CHECK(tenth >= 1024, "one of 100 ms pauses for %u", tenth);
	CHECK(pause_after(&of, 1000000) == tenth && of.again == again, "the pause has no bound: %u", of.pause);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

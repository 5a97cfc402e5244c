// random.c: two endpoints of one thread do what programs do (traffic.h). random SEED STEPS.
#include <sys/wait.h>
#include <unistd.h>

#include "traffic.h"

enum { FORK_EVERY = 701 }; // steps

// settles has all that was sent be received, and compares the memory.
static void settles(void)
{
	for (long turns = 0;; turns++) {
		bool done = true, news = false;
		for (int i = 0; i < 2; i++) {
			news = feeds(&ends[i]) || news;
			done = done && idle(&ends[i]);
		}
		if (done && !news)
			break;
		ask(turns < 30000000);
	}
	for (int i = 0; i < 2; i++) {
		struct end *e = &ends[i];
		quiet(e);
		for (int k = 0; k < REGIONS; k++)
			ask(memcmp(e->memory[k], e->shadow[k], REGION) == 0);
	}
}

// breaks ends the connection at some moment, one end or both, and looks at what has come.
static void breaks(void)
{
	struct end *first = &ends[any(2)], *last = other(first);
	const uint64_t way = any(4);
	if (way == 3) // both at once
		last->over = true;
	if (way > 0) {
		first->over = true;
		ask(fi_shutdown(first->side.ep, 0) == 0);
		if (way == 3)
			ask(fi_shutdown(last->side.ep, 0) == 0);
		if (any(2) == 0)
			(void)reads(last);
	}
	closes(first);
	for (long turns = 0; !last->over && of(last->side.ep, struct ep, fid)->state != DOWN; turns++) {
		if (any(3) == 0)
			receives_one(last);
		(void)reads(last);
		events(last);
		ask(turns < 30000000);
	}
	while (reads(last))
		;
	ask(way == 3 || first->taken >= first->certain);
	closes(last);
	for (int i = 0; i < 2; i++) {
		cleans(&ends[i]);
		begins(&ends[i]);
	}
}

// forks makes a child, which closes all that it has inherited.
static void forks(void)
{
	int status;
	pid_t p = fork();
	must(p >= 0);
	if (p == 0) {
		for (int i = 0; i < 2; i++) {
			struct side had = ends[i].side; // the parent reads its own
			disowns(&had, ends[i].mr);
		}
		_exit(0);
	}
	ask(waitpid(p, &status, 0) == p && status == 0);
}

int main(int argc, char **argv)
{
	must(argc == 3);
	seeds(argv[1]);
	opens();
	opens_side(&ends[0]);
	other_node();
	opens_side(&ends[1]);
	pair_connect(&ends[0].side, &ends[1].side);
	for (step = 0; step < atol(argv[2]); step++) {
		one(&ends[any(2)]);
		if (step % FORK_EVERY == 0)
			forks();
		if (any(100) == 0)
			settles();
		if (any(1000) == 0) {
			breaks();
			pair_connect(&ends[0].side, &ends[1].side);
		}
	}
	settles();
	breaks();
	for (int i = 0; i < 2; i++)
		side_close(&ends[i].side);
	frees_memory();
	puts("done");
	return 0;
}

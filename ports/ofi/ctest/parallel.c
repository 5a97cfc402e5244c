// parallel.c: several threads do at each of two endpoints what programs do (traffic.h,
// FI_THREAD_SAFE), and one end shuts down under them. parallel SEED ROUNDS
#include <pthread.h>
#include <sched.h>

#include "traffic.h"

enum { STEPS = 3000 };

static atomic_bool over; // of a round
static atomic_int posting;

// frees forgets the writes and reads that give no completion, if all that was posted has ended.
static void frees(struct end *e)
{
	if (!all_end(e) || e->over || other(e)->over)
		return;
	for (unsigned k = 0; k < OPS; k++) {
		struct posted *o = &e->ops[k];
		if (o->pending && o->what >= WRITTEN && o->quiet && !o->refused)
			forgets(o);
	}
}

// posts is a thread's: two of them post at an end. Each holds the lock while it posts and notes
// that, so that the notes are in the order of the provider's.
static void *posts(void *arg)
{
	struct end *e = arg;
	state = (uint64_t)(uintptr_t)&e + (uint64_t)step * 977 + 1; // an address of this thread
	for (long i = 0; i < STEPS && !over; i++) {
		pthread_mutex_lock(&e->lock);
		switch (any(17)) {
		case 0: case 1: case 2: case 3: case 4:
			sends_one(e);
			break;
		case 5: case 6: case 7: case 8: case 9:
			receives_one(e);
			break;
		case 10: case 11: case 12:
			rma_one(e, true);
			break;
		case 13: case 14:
			rma_one(e, false);
			break;
		case 15:
			cancels(e);
			break;
		default:
			frees(e);
		}
		pthread_mutex_unlock(&e->lock);
		if (any(8) == 0)
			sched_yield();
	}
	posting--;
	return NULL;
}

// takes is the thread that reads the completions of an end. It holds the lock for the notes only.
static void *takes(void *arg)
{
	struct end *e = arg;
	struct fi_cq_data_entry c[4];
	state = (uint64_t)(uintptr_t)&e + 1;
	while (!over) {
		ssize_t n = any(2) == 0 ? fi_cq_read(e->side.cq, c, 1 + any(4)) : fi_cq_sread(e->side.cq, c, 1 + any(4), NULL, 5);
		ask(n > 0 || n == -FI_EAGAIN || n == -FI_EAVAIL);
		pthread_mutex_lock(&e->lock);
		if (n == -FI_EAVAIL)
			failed(e);
		for (ssize_t i = 0; i < n; i++)
			completed(e, &c[i]);
		pthread_mutex_unlock(&e->lock);
	}
	return NULL;
}

// helps is a thread that calls what tells nothing of an operation.
static void *helps(void *arg)
{
	struct end *e = arg;
	struct fid *fids[] = {&e->side.cq->fid, &e->side.eq->fid};
	uint8_t own[64];
	struct fid_mr *mr;
	state = (uint64_t)(uintptr_t)&e + 1;
	while (!over)
		switch (any(6)) {
		case 0:
			events(e);
			break;
		case 1:
			(void)fi_cntr_read(e->side.cntr);
			break;
		case 2:
			(void)fi_trywait(e->side.fabric, fids, 2);
			break;
		case 3:
			(void)fi_cq_signal(e->side.cq);
			break;
		case 4:
			ask(fi_mr_reg(e->side.domain, own, sizeof(own), FI_REMOTE_READ, 0, 50, 0, &mr, NULL) == 0 && fi_close(&mr->fid) == 0);
			break;
		default:
			(void)fi_cq_read(e->side.cq, NULL, 0);
			sched_yield();
		}
	return NULL;
}

// comes waits until all has come that was sent, and compares the memory.
static void comes(void)
{
	for (bool all = false; !all; sched_yield()) {
		all = true;
		for (int i = 0; i < 2; i++) {
			struct end *e = &ends[i];
			pthread_mutex_lock(&e->lock);
			while (other(e)->sent - other(e)->taken > e->receives_count) {
				unsigned had = e->receives_count;
				receives_one(e);
				if (e->receives_count == had)
					break;
			}
			all = idle(e) && all;
			pthread_mutex_unlock(&e->lock);
		}
	}
	for (int i = 0; i < 2; i++) {
		pthread_mutex_lock(&ends[i].lock);
		quiet(&ends[i]);
		pthread_mutex_unlock(&ends[i].lock);
		for (int k = 0; k < REGIONS; k++)
			ask(memcmp(ends[i].memory[k], ends[i].shadow[k], REGION) == 0);
	}
}

static bool down(struct end *e)
{
	struct ep *ep = of(e->side.ep, struct ep, fid);
	lock(ep->domain->fabric);
	bool is = ep->state == DOWN;
	unlock(ep->domain->fabric);
	return is;
}

static void turns(void)
{
	pthread_t all[8];
	int n = 0;
	for (int i = 0; i < 2; i++) {
		begins(&ends[i]);
		for (int k = 0; k < REGIONS; k++)
			registers(&ends[i], k);
	}
	pair_connect(&ends[0].side, &ends[1].side);
	over = false;
	posting = 4;
	for (int i = 0; i < 2; i++) {
		must(pthread_create(&all[n++], NULL, posts, &ends[i]) == 0);
		must(pthread_create(&all[n++], NULL, posts, &ends[i]) == 0);
		must(pthread_create(&all[n++], NULL, takes, &ends[i]) == 0);
		must(pthread_create(&all[n++], NULL, helps, &ends[i]) == 0);
	}
	struct end *first = &ends[any(2)];
	if (any(2) == 0) {
		while (posting > 0)
			sched_yield();
		comes();
	} else {
		for (uint64_t until = any(STEPS); first->sent < until && posting > 0;)
			sched_yield();
	}
	first->over = true;
	ask(fi_shutdown(first->side.ep, 0) == 0);
	while (!down(other(first))) { // its threads hear of it
		pthread_mutex_lock(&other(first)->lock);
		receives_one(other(first));
		pthread_mutex_unlock(&other(first)->lock);
		sched_yield();
	}
	over = true;
	for (int i = 0; i < n; i++)
		must(pthread_join(all[i], NULL) == 0);
	for (int i = 0; i < 2; i++) {
		closes(&ends[i]);
		events(&ends[i]);
	}
	ask(first->taken >= first->certain);
	for (int i = 0; i < 2; i++)
		cleans(&ends[i]);
}

int main(int argc, char **argv)
{
	must(argc == 3);
	seeds(argv[1]);
	opens();
	together = false;
	opens_side(&ends[0]);
	other_node();
	opens_side(&ends[1]);
	for (int i = 0; i < 2; i++)
		must(pthread_mutex_init(&ends[i].lock, NULL) == 0);
	for (step = 0; step < atol(argv[2]); step++)
		turns();
	for (int i = 0; i < 2; i++)
		side_close(&ends[i].side);
	frees_memory();
	puts("done");
	return 0;
}

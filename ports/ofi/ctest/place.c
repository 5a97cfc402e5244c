// place.c: a peer writes to a region at any moment, and is killed at any. When the region is
// closed, nothing of it changes any more.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { SIZE = 4 << 20, ROUNDS = 400 };

static struct side a, b;
static uint8_t *memory;
static unsigned writes, stop; // writes: that have ended

static unsigned count(unsigned *n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }

// mark and marked set and check a byte of each page: it takes less time than a write.
static void mark(void)
{
	for (size_t at = 0; at < SIZE; at += 4096)
		memory[at] = 0xaa;
}

static bool marked(void)
{
	for (size_t at = 0; at < SIZE; at += 4096)
		if (memory[at] != 0xaa)
			return false;
	return true;
}

static void *writer(void *arg)
{
	static uint8_t bytes[SIZE];
	struct fi_cq_data_entry e;
	(void)arg;
	for (uint8_t i = 1; !count(&stop); i++) {
		memset(bytes, i % 100 + 1, SIZE);
		if (fi_write(a.ep, bytes, SIZE, NULL, 0, 0, 1, NULL) != 0)
			continue;
		ssize_t n;
		while ((n = fi_cq_read(a.cq, &e, 1)) == -FI_EAGAIN && !count(&stop))
			;
		if (n == -FI_EAVAIL)
			must(failure(&a) == FI_EACCES);
		__atomic_fetch_add(&writes, n == 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

// closes has the region closed while a thread writes to it.
static void closes(void)
{
	pthread_t t;
	must(pthread_create(&t, NULL, writer, NULL) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct fid_mr *mr;
		must(fi_mr_reg(b.domain, memory, SIZE, FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL) == 0);
		for (unsigned from = count(&writes); count(&writes) - from < 3;)
			must(fi_cq_read(b.cq, NULL, 0) == -FI_EAGAIN);
		must(of(b.ep, struct ep, fid)->gate != NULL);
		for (long k = 0; k < 100000000 && !__atomic_load_n(&of(a.ep, struct ep, fid)->writes, __ATOMIC_ACQUIRE); k++)
			;
		int r;
		while ((r = fi_close(&mr->fid)) == -FI_EBUSY) // the writer has no processor
			;
		must(r == 0);
		mark();
		for (int k = 0; k < 20; k++, sched_yield())
			must(marked());
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	must(pthread_join(t, NULL) == 0);
}

// both has each end read, and then write what it copies itself, at the same time: while it waits
// for its answer it answers the other.
static void both(void)
{
	struct side *s[2] = {&a, &b};
	struct fi_cq_data_entry e;
	struct fid_mr *mr[2];
	static uint64_t got[2];
	int ended[2] = {0, 0};
	for (int i = 0; i < 2; i++)
		must(fi_mr_reg(s[i]->domain, memory + i * SIZE / 2, SIZE / 2, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 1, 0, &mr[i], NULL) == 0);
	for (int i = 0; i < 2; i++) {
		must(fi_write(s[i]->ep, memory + i * SIZE / 2, SIZE / 2, NULL, 0, 0, 1, NULL) == 0);
		must(turn(s[i], s[1 - i], &e) == 1);
	}
	for (int i = 0; i < 2; i++) {
		must(of(s[i]->ep, struct ep, fid)->way.count == 1);
		must(fi_read(s[i]->ep, &got[i], sizeof(got[i]), NULL, 0, 0, 1, NULL) == 0);
		must(fi_write(s[i]->ep, memory + i * SIZE / 2, SIZE / 2, NULL, 0, 0, 1, NULL) == 0);
	}
	for (long turns = 0; ended[0] + ended[1] < 4; turns++) {
		must(turns < 10000000);
		for (int i = 0; i < 2; i++)
			ended[i] += fi_cq_read(s[i]->cq, &e, 1) == 1;
	}
	for (int i = 0; i < 2; i++)
		must(fi_close(&mr[i]->fid) == 0);
}

// peer is a process that writes until it is killed.
static void peer(int in)
{
	union address at;
	struct fi_eq_cm_entry cm;
	ssize_t len;
	must(read(in, &at, sizeof(at)) == sizeof(at));
	side_open(&a);
	side_endpoint(&a, a.info);
	must(fi_connect(a.ep, &at, NULL, 0) == 0);
	must(side_event(&a, &cm, sizeof(cm), &len) == FI_CONNECTED);
	(void)writer(NULL);
}

// killed has the peer die while it writes.
static void killed(void)
{
	union address at;
	struct fi_eq_cm_entry cm;
	struct fid_mr *mr;
	ssize_t len;
	int to[2], status;
	must(pipe(to) == 0);
	pid_t p = fork();
	must(p >= 0);
	if (p == 0) {
		peer(to[0]);
		_exit(1);
	}
	side_open(&b);
	must(fi_mr_reg(b.domain, memory, SIZE, FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL) == 0);
	struct fid_pep *pep = side_listen(&b, &at);
	must(write(to[1], &at, sizeof(at)) == sizeof(at));
	must(side_event(&b, &cm, sizeof(cm), &len) == FI_CONNREQ);
	side_endpoint(&b, cm.info);
	fi_freeinfo(cm.info);
	must(fi_accept(b.ep, NULL, 0) == 0);
	must(side_event(&b, &cm, sizeof(cm), &len) == FI_CONNECTED);
	struct ep *ep = of(b.ep, struct ep, fid);
	while (ep->gate == NULL)
		must(fi_cq_read(b.cq, NULL, 0) == -FI_EAGAIN);
	while (!direct_writes(&ep->source, -1))
		must(fi_cq_read(b.cq, NULL, 0) == -FI_EAGAIN);
	must(kill(p, SIGKILL) == 0);
	must(fi_close(&mr->fid) == 0);
	mark();
	must(waitpid(p, &status, 0) == p && WIFSIGNALED(status));
	must(marked());
	must(fi_close(&pep->fid) == 0);
	side_close(&b);
	close(to[0]);
	close(to[1]);
}

int main(void)
{
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(memory != MAP_FAILED);
	for (int i = 0; i < 10; i++)
		killed();
	side_open(&a);
	side_open(&b);
	pair_connect(&a, &b);
	must(of(a.ep, struct ep, fid)->source.reads);
	both();
	closes();
	side_close(&a);
	side_close(&b);
	puts("done");
	return 0;
}

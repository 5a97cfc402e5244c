// gone.c: a peer that is killed, and a node that ends and is started again. gone killed|again
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static uint8_t bytes[1 << 20];

// told looks whether everything that was posted at a side has ended with the error, and that its
// event queue says so. The completion queue is waited for as programs do: by sleep.
static void told(struct side *s, int posted, int error)
{
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	ssize_t len;
	for (int i = 0; i < posted; i++) {
		must(fi_cq_sread(s->cq, &e, 1, NULL, 60000) == -FI_EAVAIL);
		must(failure(s) == error);
	}
	must(fi_cq_read(s->cq, &e, 1) == -FI_EAGAIN);
	must(side_event(s, &cm, sizeof(cm), &len) == FI_SHUTDOWN && cm.fid == &s->ep->fid);
	must(fi_send(s->ep, bytes, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
	must(fi_recv(s->ep, bytes, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
}

// victim connects, sends its last words, and waits to be killed. What it is sent it does not
// receive: large messages and writes stay on their way.
static void victim(int in)
{
	union address at;
	struct fi_eq_cm_entry cm;
	struct side s;
	struct fi_cq_data_entry e;
	ssize_t len;
	must(read(in, &at, sizeof(at)) == sizeof(at));
	side_open(&s);
	side_endpoint(&s, s.info);
	must(fi_connect(s.ep, &at, NULL, 0) == 0);
	must(side_event(&s, &cm, sizeof(cm), &len) == FI_CONNECTED);
	must(fi_inject(s.ep, "last", 4, 0) == 0);
	while (fi_cq_sread(s.cq, &e, 1, NULL, -1) == -FI_EINTR) // nothing is told: an inject tells nothing
		;
}

// killed has a peer die while receives, sends and a write wait for it.
static void killed(void)
{
	union address at;
	struct fi_eq_cm_entry cm;
	struct fi_cq_data_entry e;
	struct timespec t0, t1;
	struct side s;
	ssize_t len;
	int to[2], status;
	char first[8] = "", second[8];
	must(pipe(to) == 0);
	pid_t p = fork();
	must(p >= 0);
	if (p == 0) {
		victim(to[0]);
		_exit(1);
	}
	side_open(&s);
	struct fid_pep *pep = side_listen(&s, &at);
	must(write(to[1], &at, sizeof(at)) == sizeof(at));
	must(side_event(&s, &cm, sizeof(cm), &len) == FI_CONNREQ);
	side_endpoint(&s, cm.info);
	fi_freeinfo(cm.info);
	must(fi_accept(s.ep, NULL, 0) == 0);
	must(side_event(&s, &cm, sizeof(cm), &len) == FI_CONNECTED);
	must(fi_send(s.ep, bytes, sizeof(bytes), NULL, 0, NULL) == 0);
	must(fi_write(s.ep, bytes, 8, NULL, 0, 0, 5, NULL) == 0);
	// Its last words have come, and are in the receiver's hands before it dies.
	struct ep *ep = of(s.ep, struct ep, fid);
	while (ep->held_count == 0)
		must(fi_cq_sread(s.cq, &e, 1, NULL, 1) == -FI_EAGAIN);
	must(kill(p, SIGKILL) == 0);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	must(fi_recv(s.ep, first, sizeof(first), NULL, 0, first) == 0);
	must(fi_recv(s.ep, second, sizeof(second), NULL, 0, second) == 0);
	must(fi_cq_sread(s.cq, &e, 1, NULL, 60000) == 1 && e.op_context == first && e.len == 4 && memcmp(first, "last", 4) == 0);
	told(&s, 3, FI_ECONNABORTED);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	must(waitpid(p, &status, 0) == p && WIFSIGNALED(status));
	printf("told after %ld us\n", (long)((t1.tv_sec - t0.tv_sec) * 1000000 + (t1.tv_nsec - t0.tv_nsec) / 1000));
	must(fi_close(&pep->fid) == 0);
	side_close(&s);
	close(to[0]);
	close(to[1]);
}

// again works at a node until that ends, and then at the one that has its place.
static void again(void)
{
	struct side a, b;
	struct fi_cq_data_entry e;
	char line[16], into[8];
	for (int i = 0; i < 2; i++) {
		side_open(&a);
		side_open(&b);
		pair_connect(&a, &b);
		must(fi_recv(b.ep, into, sizeof(into), NULL, 0, NULL) == 0);
		must(fi_inject(a.ep, "through", 8, 0) == 0);
		must(turn(&b, &a, &e) == 1 && e.len == 8 && memcmp(into, "through", 8) == 0);
		puts("works");
		fflush(stdout);
		if (i == 0) {
			must(fi_recv(a.ep, into, sizeof(into), NULL, 0, NULL) == 0);
			told(&a, 1, FI_ECONNABORTED);
			// The old domain stays dead, whatever runs since.
			must(fgets(line, sizeof(line), stdin) != NULL);
			must(fi_send(a.ep, into, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
			must(fi_cq_sread(a.cq, &e, 1, NULL, 60000) == -FI_ENETDOWN);
		}
		side_close(&a);
		side_close(&b);
	}
}

int main(int argc, char **argv)
{
	must(argc == 2);
	if (strcmp(argv[1], "killed") == 0)
		for (int i = 0; i < 5; i++)
			killed();
	else
		again();
	puts("done");
	return 0;
}

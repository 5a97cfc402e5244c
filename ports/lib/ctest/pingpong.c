// pingpong.c measures between two processes: VELO's half round trip, PUT and GET against memcpy,
// registration, and what a process costs that waits for a notification. It needs a node
// (EXN_PORTS). "dsbench ports" runs it.
//
// 	pingpong velo|rma|place|register|idle [ROUNDS]
//
// place is rma with memory that stays in its place, since others could share it: the node copies.
// ROUNDS of idle are milliseconds. It prints lines of "name value unit". With CPUS=A,B it pins its
// two ends.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../include/rma2.h"
#include "../include/velo2.h"

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "pingpong: %s\n", what);
	exit(1);
}

static void pin(int end)
{
	int cpus[2];
	const char *s = getenv("CPUS");
	if (s == NULL || sscanf(s, "%d,%d", &cpus[0], &cpus[1]) != 2)
		return;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpus[end], &set);
	must(sched_setaffinity(0, sizeof(set), &set) == 0, "sched_setaffinity");
}

// tell and hear exchange what the ends have to know of each other, over a pipe each way.
static int pipes[2][2];

static void tell(int end, const void *data, size_t n)
{
	must(write(pipes[end][1], data, n) == (ssize_t)n, "write");
}

static void hear(int end, void *data, size_t n)
{
	must(read(pipes[!end][0], data, n) == (ssize_t)n, "read");
}

static void velo(int end, int rounds)
{
	velo2_port_t port;
	velo2_connection_t con;
	must(velo2_open(&port) == VELO2_RET_SUCCESS, "velo2_open");
	uint32_t mine[2] = {velo2_get_nodeid(&port), velo2_get_vpid(&port)}, theirs[2];
	tell(end, mine, sizeof(mine));
	hear(end, theirs, sizeof(theirs));
	must(velo2_connect(&port, &con, theirs[0], theirs[1]) == VELO2_RET_SUCCESS, "velo2_connect");
	char msg[64] = {0};
	uint32_t len;
	double begun = 0;
	for (int i = -rounds / 10; i < rounds; i++) {
		if (i == 0)
			begun = now();
		if (end == 0)
			must(velo2_send(&con, msg, sizeof(msg), 1, 2) == VELO2_RET_SUCCESS, "velo2_send");
		while (velo2_probe_recv(&port, msg, sizeof(msg), &len, NULL, NULL, NULL) != VELO2_RET_SUCCESS)
			;
		if (end == 1)
			must(velo2_send(&con, msg, sizeof(msg), 1, 2) == VELO2_RET_SUCCESS, "velo2_send");
	}
	if (end == 0)
		printf("velo-64 %.4f us half round trip\n", (now() - begun) / rounds / 2 * 1e6);
	// The last message has arrived when the other end has told so.
	tell(end, mine, 1);
	hear(end, mine, 1);
	velo2_close(&port);
}

enum { SIZE = 64 * 1024 };

struct rma_end {
	RMA2_Port port;
	RMA2_Handle peer;
	RMA2_Region *region;
	RMA2_NLA theirs, mine;
	char *mem;
};

// in_place has the registered memory be such as cannot move.
static int in_place;

static void rma_begin(int end, struct rma_end *e)
{
	struct {
		uint32_t node, vpid;
		RMA2_NLA nla;
	} mine, theirs;
	must(rma2_open(&e->port) == RMA2_SUCCESS, "rma2_open");
	e->mem = in_place ? mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : aligned_alloc(4096, SIZE);
	must(e->mem != NULL && e->mem != MAP_FAILED, "memory");
	memset(e->mem, end + 1, SIZE);
	must(rma2_register(e->port, e->mem, SIZE, &e->region) == RMA2_SUCCESS, "rma2_register");
	mine.node = rma2_get_nodeid(e->port);
	mine.vpid = rma2_get_vpid(e->port);
	must(rma2_get_nla(e->region, 0, &e->mine) == RMA2_SUCCESS, "rma2_get_nla");
	mine.nla = e->mine;
	tell(end, &mine, sizeof(mine));
	hear(end, &theirs, sizeof(theirs));
	e->theirs = theirs.nla;
	must(rma2_connect(e->port, (RMA2_Nodeid)theirs.node, (RMA2_VPID)theirs.vpid, RMA2_CONN_DEFAULT, &e->peer) == RMA2_SUCCESS,
	     "rma2_connect");
}

static void wait_noti(RMA2_Port port)
{
	RMA2_Notification *n;
	while (rma2_noti_probe(port, &n) != RMA2_SUCCESS)
		;
	must(rma2_noti_get_error(n) == 0, "a notification with an error");
	rma2_noti_free(port, n);
}

// The receiver reads nothing: that is one memcpy from memory that this core has to memory that
// it has, too, and so is the control.
static void rma(int end, int rounds)
{
	struct rma_end e;
	rma_begin(end, &e);
	char *control = aligned_alloc(4096, SIZE), byte = 0;
	memset(control, 1, SIZE);
	for (int pass = 0; pass < 3 && end == 0; pass++) {
		double t[4] = {now()};
		for (int i = 0; i < rounds; i++) {
			memcpy(control, e.mem, SIZE);
			__asm__ volatile("" ::: "memory");
		}
		t[1] = now();
		for (int i = 0; i < rounds; i++) {
			must(rma2_post_put_bt(e.port, e.peer, e.region, 0, SIZE, e.theirs, RMA2_REQUESTER_NOTIFICATION, RMA2_CMD_DEFAULT) ==
				     RMA2_SUCCESS, "put");
			wait_noti(e.port);
		}
		t[2] = now();
		for (int i = 0; i < rounds; i++) {
			must(rma2_post_get_bt(e.port, e.peer, e.region, 0, SIZE, e.theirs, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_DEFAULT) ==
				     RMA2_SUCCESS, "get");
			wait_noti(e.port);
		}
		t[3] = now();
		double bytes = (double)SIZE * rounds * 1e-9;
		printf("memcpy %.2f GB/s\nput-64k %.2f GB/s\nget-64k %.2f GB/s\n", bytes / (t[1] - t[0]), bytes / (t[2] - t[1]),
		       bytes / (t[3] - t[2]));
		printf("put-of-memcpy %.3f ratio\nget-of-memcpy %.3f ratio\n", (t[1] - t[0]) / (t[2] - t[1]), (t[1] - t[0]) / (t[3] - t[2]));
	}
	tell(end, &byte, 1);
	hear(end, &byte, 1);
	// And one way with a notification at each end.
	double begun = now();
	for (int i = 0; i < rounds; i++) {
		if (end == 1)
			wait_noti(e.port);
		must(rma2_post_put_bt(e.port, e.peer, e.region, 0, 64, e.theirs, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_DEFAULT) ==
			     RMA2_SUCCESS, "put");
		if (end == 0)
			wait_noti(e.port);
	}
	if (end == 0)
		printf("put-64 %.4f us half round trip\n", (now() - begun) / rounds / 2 * 1e6);
	tell(end, &byte, 1);
	hear(end, &byte, 1);
	rma2_unregister(e.port, e.region);
	rma2_close(e.port);
	if (!in_place)
		free(e.mem);
	free(control);
}

// cpu_time is the CPU time that a process has used.
static double cpu_time(pid_t pid)
{
	clockid_t clock;
	struct timespec t;
	must(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0, "clock_getcpuclockid");
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_ms(int n)
{
	nanosleep(&(struct timespec){n / 1000, n % 1000 * 1000000l}, NULL);
}

// The parent waits for a notification; the child looks at what it uses meanwhile, once it sleeps,
// and sends the notification.
static void idle(int end, int milliseconds)
{
	struct rma_end e;
	rma_begin(end, &e);
	if (end == 1) {
		double before, used;
		do {
			before = cpu_time(getppid());
			sleep_ms(20);
			used = cpu_time(getppid());
		} while (used != before);
		double begun = now();
		sleep_ms(milliseconds);
		printf("idle %.1f us/s\n", (cpu_time(getppid()) - used) * 1e6 / (now() - begun));
		must(rma2_post_notification(e.port, e.peer, 1, 2, RMA2_COMPLETER_NOTIFICATION, RMA2_CMD_DEFAULT) == RMA2_SUCCESS, "post");
	} else {
		RMA2_Notification *n;
		must(rma2_noti_get_block(e.port, &n) == RMA2_SUCCESS, "rma2_noti_get_block");
		rma2_noti_free(e.port, n);
	}
	char byte = 0;
	tell(end, &byte, 1);
	hear(end, &byte, 1);
	rma2_close(e.port);
}

static void registration(int rounds)
{
	static const size_t sizes[] = {64, 4096, 65536, 1 << 20};
	RMA2_Port port;
	RMA2_Region *r;
	must(rma2_open(&port) == RMA2_SUCCESS, "rma2_open");
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		char *mem = aligned_alloc(4096, sizes[s] < 4096 ? 4096 : sizes[s]);
		memset(mem, 1, sizes[s]);
		double in = 0, out = 0;
		for (int i = 0; i < rounds; i++) {
			double t = now();
			must(rma2_register(port, mem, sizes[s], &r) == RMA2_SUCCESS, "rma2_register");
			double u = now();
			must(rma2_unregister(port, r) == RMA2_SUCCESS, "rma2_unregister");
			in += u - t;
			out += now() - u;
		}
		printf("register-%zu %.2f us\nunregister-%zu %.2f us\n", sizes[s], in / rounds * 1e6, sizes[s], out / rounds * 1e6);
		free(mem);
	}
	rma2_close(port);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int rounds = argc > 2 ? atoi(argv[2]) : 100000;
	if (strcmp(what, "register") == 0) {
		pin(0);
		registration(rounds);
		return 0;
	}
	in_place = strcmp(what, "place") == 0;
	void (*run)(int, int) = strcmp(what, "velo") == 0 ? velo : in_place || strcmp(what, "rma") == 0 ? rma : strcmp(what, "idle") == 0 ? idle : NULL;
	must(run != NULL && rounds > 0, "usage: pingpong velo|rma|place|register|idle [ROUNDS]");
	must(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0, "pipe");
	fflush(stdout);
	pid_t child = fork();
	must(child >= 0, "fork");
	int end = child == 0;
	pin(end);
	// Who ends ends the other's wait, too.
	close(pipes[end][0]);
	close(pipes[!end][1]);
	run(end, rounds);
	if (child == 0)
		return 0;
	int status;
	must(waitpid(child, &status, 0) == child && status == 0, "the other end has failed");
	return 0;
}

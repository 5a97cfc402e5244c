// apart.c: the two endpoints of traffic.h in two processes. A third one stops one of them, again
// and again, for up to 0.3 s; the first one kills the second, or one of them leaves, at any moment,
// also while they connect. apart SEED ROUNDS
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "traffic.h"

// What both processes know of a round.
static struct round {
	union address at;
	atomic_bool listens; // at is there
	bool dials;          // the second one does
	atomic_int settles;  // so often they have settled, or are to
	atomic_int settled[2], compared[2];
	atomic_bool leaves; // the second one is to
	atomic_int pid;     // of the second one; 0: there is none
} *r;

static pid_t child;
static int64_t kill_at; // INT64_MAX: never
static bool killed;
static long kills, left_by[2];

static int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// looks is called wherever a process waits: it kills the other one, or sees that it has failed.
static void looks(void)
{
	static unsigned count;
	siginfo_t i = {0};
	if (child == 0 || killed)
		return;
	if (++count % 1024 == 0)
		ask(waitid(P_PID, (id_t)child, &i, WEXITED | WNOHANG | WNOWAIT) == 0 && (i.si_pid == 0 || i.si_status == 0));
	if (now_us() > kill_at) {
		ends[1].over = true;
		killed = true;
		r->pid = 0;
		ask(kill(child, SIGKILL) == 0);
		kills++;
	}
}

// stopper stops one of the two processes, and lets it go on.
static void stopper(pid_t first)
{
	for (;;) {
		usleep((useconds_t)any(200000));
		pid_t p = any(2) == 0 ? first : r->pid;
		if (p == 0 || kill(p, SIGSTOP) != 0)
			continue;
		usleep((useconds_t)any(300000));
		(void)kill(p, SIGCONT);
	}
}

// event waits for an event of the end. It returns 0 if the other end is killed meanwhile, and tells
// nothing any more, or if what is told is an error.
static uint32_t event(struct end *e, struct fi_eq_cm_entry *cm)
{
	uint32_t what;
	struct fi_eq_err_entry err = {0};
	for (int64_t last = INT64_MAX; now_us() < last;) {
		ssize_t n = fi_eq_sread(e->side.eq, &what, cm, sizeof(*cm), 1, 0);
		if (n >= (ssize_t)sizeof(*cm))
			return what;
		if (n == -FI_EAVAIL) {
			ask(fi_eq_readerr(e->side.eq, &err, 0) == sizeof(err));
			ask(ends[1].over);
			return 0;
		}
		ask(n == -FI_EAGAIN || n == -FI_EINTR);
		looks();
		if (killed && last == INT64_MAX)
			last = now_us() + 300000;
	}
	return 0;
}

// dials and listens connect the end. They return false if the other one is killed meanwhile.
static bool dials(struct end *e)
{
	struct fi_eq_cm_entry cm;
	while (!r->listens) {
		looks();
		if (killed)
			return false;
		sched_yield();
	}
	side_endpoint(&e->side, e->side.info);
	int n = fi_connect(e->side.ep, &r->at, NULL, 0);
	ask(n == 0 || ends[1].over);
	uint32_t what = n == 0 ? event(e, &cm) : 0;
	ask(what == 0 || (what == FI_CONNECTED && cm.fid == &e->side.ep->fid));
	return what != 0;
}

static bool listens(struct end *e)
{
	struct fi_eq_cm_entry cm;
	struct fid_pep *pep = side_listen(&e->side, &r->at);
	r->listens = true;
	uint32_t what = event(e, &cm);
	if (what != 0) {
		ask(what == FI_CONNREQ);
		side_endpoint(&e->side, cm.info);
		fi_freeinfo(cm.info);
		int n = fi_accept(e->side.ep, NULL, 0);
		ask(n == 0 || ends[1].over);
		what = n == 0 ? event(e, &cm) : 0;
		ask(what == 0 || (what == FI_CONNECTED && cm.fid == &e->side.ep->fid));
	}
	ask(fi_close(&pep->fid) == 0);
	return what != 0;
}

static enum state at(struct end *e) { return of(e->side.ep, struct ep, fid)->state; }

// meet waits until both ends have counted to turn. It returns false if the other end is over.
static bool meet(struct end *e, atomic_int counts[2], int turn, bool whole)
{
	const int mine = e == &ends[1];
	const bool was = lazy;
	for (lazy = false; counts[1 - mine] < turn || counts[mine] < turn;) {
		looks();
		if (other(e)->over)
			return false;
		if (!feeds(e) && (!whole || idle(e)))
			counts[mine] = turn;
	}
	lazy = was;
	return true;
}

// settles has all come that either has sent, and compares the memory.
static void settles(struct end *e, int turn)
{
	if (!meet(e, r->settled, turn, true))
		return;
	quiet(e);
	for (int k = 0; k < REGIONS; k++)
		ask(memcmp(e->memory[k], e->shadow[k], REGION) == 0);
	(void)meet(e, r->compared, turn, false);
}

// leaves ends the connection from this end.
static void leaves(struct end *e)
{
	e->over = true;
	if (any(2) == 0)
		ask(fi_shutdown(e->side.ep, 0) == 0);
	closes(e);
	cleans(e);
}

// stays sees the other end leave, or die. All that is certain comes.
static void stays(struct end *e)
{
	const bool late = any(2); // what is held is to outlast the other end
	for (int64_t last = now_us() + 60000000; at(e) != DOWN;) {
		if (any(3) == 0 && !(late && sends(at(e))))
			receives_one(e);
		(void)reads(e);
		events(e);
		ask(now_us() < last);
	}
	while (reads(e))
		;
	ask(other(e)->taken >= other(e)->certain);
	events(e);
	e->over = true;
	closes(e);
	cleans(e);
}

// traffic goes on until the round is over, for as many steps at least.
static void traffic(struct end *e, long steps)
{
	const bool first = e == &ends[0];
	lazy = any(2);
	for (int seen = 0; !other(e)->over && at(e) != DOWN && (!first || steps-- > 0) && (first || !r->leaves);) {
		one(e);
		looks();
		if (first && any(500) == 0)
			r->settles++;
		if (r->settles > seen)
			settles(e, ++seen);
	}
	lazy = false;
}

static void registers_all(struct end *e)
{
	for (int k = 0; k < REGIONS; k++)
		registers(e, k);
}

// gives_up closes an endpoint that was not connected, as the other process is over.
static void gives_up(struct end *e)
{
	struct fi_eq_cm_entry cm;
	uint32_t what;
	e->over = true;
	if (e->side.ep != NULL)
		closes(e);
	while (fi_eq_read(e->side.eq, &what, &cm, sizeof(cm), 0) > 0)
		;
	cleans(e);
}

static void second(struct side *had, struct fid_mr *const *mr)
{
	struct end *e = &ends[1];
	if (any(2) == 0)
		disowns(had, mr);
	(void)other_node();
	opens_side(e);
	registers_all(e);
	if (r->dials ? dials(e) : listens(e)) {
		traffic(e, 0);
		if (r->leaves)
			leaves(e);
		else
			stays(e);
	} else {
		gives_up(e);
	}
	side_close(&e->side);
	_exit(0);
}

// spawns makes a child, which ends with this process.
static pid_t spawns(void)
{
	pid_t parent = getpid(), p = fork();
	must(p >= 0);
	if (p == 0) {
		must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
		state ^= any(1ull << 40) + 1;
	}
	return p;
}

// ended waits for the second process.
static void ended(void)
{
	int status;
	ask(waitpid(child, &status, 0) == child);
	ask(killed ? WIFSIGNALED(status) || status == 0 : status == 0);
	r->pid = 0;
	child = 0;
}

// turns is a round.
static void turns(void)
{
	struct end *e = &ends[0];
	int64_t begun = now_us();
	*r = (struct round){.dials = any(2)};
	begins(&ends[0]);
	begins(&ends[1]);
	registers_all(e);
	struct side had = e->side; // the child's, while this process changes its own
	struct fid_mr *mr[REGIONS];
	memcpy(mr, e->mr, sizeof(mr));
	killed = false;
	if ((child = spawns()) == 0)
		second(&had, mr);
	r->pid = child;
	kill_at = any(3) > 0 ? begun + (int64_t)any(any(4) == 0 ? 20000 : 1500000) : INT64_MAX;
	const bool connected = r->dials ? listens(e) : dials(e);
	if (connected)
		traffic(e, kill_at == INT64_MAX ? (long)any(20000) : INT64_MAX);
	if (!connected) {
		gives_up(e);
	} else if (killed) {
		stays(e);
	} else if (any(2) == 0) {
		left_by[0]++;
		leaves(e);
	} else {
		left_by[1]++;
		ends[1].over = true;
		r->leaves = true;
		stays(e);
	}
	ended();
}

int main(int argc, char **argv)
{
	must(argc == 3);
	seeds(argv[1]);
	opens();
	r = shared(sizeof(*r));
	together = false;
	pid_t main_pid = getpid(), stops = spawns();
	if (stops == 0)
		stopper(main_pid);
	opens_side(&ends[0]);
	for (step = 0; step < atol(argv[2]); step++) {
		turns();
		if (any(5) == 0) {
			side_close(&ends[0].side);
			opens_side(&ends[0]);
		}
	}
	side_close(&ends[0].side);
	frees_memory();
	must(kill(stops, SIGKILL) == 0);
	fprintf(stderr, "%ld rounds, %ld killed, %ld and %ld left\n", step, kills, left_by[0], left_by[1]);
	puts("done");
	return 0;
}

// port.c: ports, grants, and what arrives.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "group.h"
#include "node.h"
#include "port.h"

// How often a port polls before it sleeps: some 20 us on a core of its own. On a shared core the
// other side runs meanwhile.
enum { SPINS = 400, SPINS_PER_YIELD = 100, WAIT_SPINS = 200 };

// How many takes find nothing before the port asks its socket whether the node lives.
enum { LOOK_EVERY = 4096 };

static size_t flow_size(int unit, struct exn_flow *f)
{
	*f = (struct exn_flow){.slots = unit == EXN_RMA ? 4096 : 128, .size = unit == EXN_RMA ? 32 : 128};
	return EXN_FLOW_HEADER + (size_t)f->slots * f->size;
}

static bool flow_map(int unit, int fd, struct exn_flow *f)
{
	size_t size = flow_size(unit, f);
	f->mem = exn_node_map(fd, size, true);
	return f->mem != NULL;
}

static void flow_unmap(int unit, struct exn_flow *f)
{
	struct exn_flow none;
	if (f->mem != NULL)
		munmap(f->mem, flow_size(unit, &none));
	f->mem = NULL;
}

static bool add_flow(struct exn_port *p, const struct exn_msg *m, int fd)
{
	if (p->in_count == p->in_room) {
		unsigned room = p->in_room ? 2 * p->in_room : 8;
		void *in = realloc(p->in, room * sizeof(*p->in));
		if (in == NULL)
			return false;
		p->in = in;
		p->in_room = room;
	}
	struct exn_inflow f = {.node = m->node, .vpid = m->vpid, .far = (m->a & 1) != 0};
	if (!flow_map(p->unit, fd, &f.flow))
		return false;
	p->in[p->in_count++] = f;
	return true;
}

static void set_gone(struct exn_port *p, const struct exn_msg *m)
{
	for (unsigned i = 0; i < p->in_count; i++)
		if (p->in[i].node == m->node && p->in[i].vpid == m->vpid)
			exn_peer_step(&p->in[i].state, EXN_ON_END);
	for (struct exn_grant *g = p->grants; g != NULL; g = g->next)
		if (g->node == m->node && g->vpid == m->vpid)
			exn_peer_step(&g->state, EXN_ON_END);
	if (p->gone != NULL)
		p->gone(p, m->node, m->vpid);
}

// handle processes a message that the node sent unasked. The caller owns fds.
static void handle(struct exn_port *p, const struct exn_msg *m, int fds[EXN_FDS])
{
	switch (m->op) {
	case EXN_FLOW:
		// Without memory for its flow, the port does not hear this peer.
		if (fds[0] >= 0)
			(void)add_flow(p, m, fds[0]);
		return;
	case EXN_GONE:
		set_gone(p, m);
		return;
	}
}

static void node_is_gone(struct exn_port *p)
{
	exn_port_step(&p->state, EXN_ON_DEATH);
	for (struct exn_grant *g = p->grants; g != NULL; g = g->next)
		exn_peer_step(&g->state, EXN_ON_END);
}

// look receives the messages that the node has sent, if any.
static void look(struct exn_port *p)
{
	struct exn_msg m;
	int fds[EXN_FDS], r;
	if (p->state == EXN_ASKING)
		return;
	p->events = __atomic_load_n((uint64_t *)p->page, __ATOMIC_ACQUIRE);
	while (!exn_dead(p) && (r = exn_node_receive(p->sock, &m, fds, false)) != 0) {
		if (r < 0)
			node_is_gone(p);
		else
			handle(p, &m, fds);
		exn_node_close(fds);
	}
}

// node_lives returns whether the node still runs: its socket says so.
static bool node_lives(struct exn_port *p)
{
	look(p);
	return !exn_dead(p);
}

static enum exn_status ask(struct exn_port *p, struct exn_msg *m, int give, int fds[EXN_FDS])
{
	struct exn_msg answer;
	memset(fds, -1, EXN_FDS * sizeof(int));
	m->number = ++p->number;
	m->unit = p->unit;
	if (exn_dead(p) || !exn_node_send(p->sock, m, give)) {
		node_is_gone(p);
		return EXN_NO_DAEMON;
	}
	for (;;) {
		if (exn_node_receive(p->sock, &answer, fds, true) <= 0) {
			node_is_gone(p);
			return EXN_NO_DAEMON;
		}
		if (answer.op == m->op && answer.number == m->number) {
			*m = answer;
			return answer.status;
		}
		handle(p, &answer, fds);
		exn_node_close(fds);
	}
}

// ask_with is exn_port_ask with a descriptor to send, or -1.
static enum exn_status ask_with(struct exn_port *p, struct exn_msg *m, int give, int fds[EXN_FDS])
{
	exn_port_step(&p->state, EXN_ON_ASK);
	enum exn_status s = ask(p, m, give, fds);
	exn_port_step(&p->state, EXN_ON_ANSWER);
	return s;
}

enum exn_status exn_port_ask(struct exn_port *p, struct exn_msg *m, int fds[EXN_FDS])
{
	return ask_with(p, m, -1, fds);
}

bool exn_port_reach(struct exn_port *p)
{
	struct exn_msg m = {.op = EXN_REACH};
	int fds[EXN_FDS];
	if (p->reach == EXN_NOT_ASKED) {
		int self = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		p->reach = self >= 0 && ask_with(p, &m, self, fds) == EXN_OK ? EXN_CAN : EXN_CANNOT;
		if (self >= 0)
			close(self);
	}
	return p->reach == EXN_CAN;
}

bool exn_port_transfer(struct exn_port *p, const struct exn_grant *g, uint64_t nla, uint32_t size, bool put)
{
	struct exn_msg m = {.op = EXN_TRANSFER, .node = g->node, .vpid = g->vpid, .a = nla, .b = size, .c = put};
	int fds[EXN_FDS];
	return exn_port_ask(p, &m, fds) == EXN_OK;
}

enum exn_status exn_port_open(struct exn_port *p, int unit, uint16_t vpid)
{
	struct exn_msg m = {.op = EXN_OPEN, .a = EXN_VERSION, .b = vpid};
	int fds[EXN_FDS];
	*p = (struct exn_port){.unit = (uint16_t)unit, .bell = -1, .memory_fd = -1};
	p->sock = exn_node_dial();
	if (p->sock < 0)
		return EXN_NO_DAEMON;
	enum exn_status s = exn_port_ask(p, &m, fds);
	if (s != EXN_OK) {
		exn_node_close(fds);
		close(p->sock);
		return s;
	}
	p->node = m.node;
	p->vpid = m.vpid;
	p->base = m.a;
	p->page = exn_node_map(fds[0], EXN_PAGE, true);
	close(fds[0]);
	p->bell = fds[1];
	p->memory_fd = fds[2];
	if (unit == EXN_RMA && fds[3] >= 0) {
		p->memory = exn_node_map(fds[2], EXN_MEMORY, true);
		p->table = exn_node_map(fds[3], EXN_TABLE, true);
		close(fds[3]);
	}
	if (p->page != NULL && (unit == EXN_VELO || (p->memory != NULL && p->table != NULL)))
		return EXN_OK;
	exn_port_close(p);
	return EXN_NO_MEMORY;
}

static void free_grant(struct exn_port *p, struct exn_grant *g)
{
	flow_unmap(p->unit, &g->out);
	if (g->memory != NULL)
		munmap(g->memory, EXN_MEMORY);
	if (g->table != NULL)
		munmap((void *)g->table, EXN_TABLE);
	if (g->bell >= 0)
		close(g->bell);
	free(g);
}

void exn_port_close(struct exn_port *p)
{
	close(p->sock);
	while (p->grants != NULL) {
		struct exn_grant *g = p->grants;
		p->grants = g->next;
		free_grant(p, g);
	}
	exn_group_free(p);
	for (unsigned i = 0; i < p->in_count; i++)
		flow_unmap(p->unit, &p->in[i].flow);
	free(p->in);
	while (p->left != NULL) {
		struct exn_left *l = p->left;
		p->left = l->next;
		flow_unmap(p->unit, &l->flow);
		free(l);
	}
	if (p->page != NULL)
		munmap(p->page, EXN_PAGE);
	if (p->memory != NULL)
		munmap(p->memory, EXN_MEMORY);
	if (p->table != NULL)
		munmap(p->table, EXN_TABLE);
	if (p->bell >= 0)
		close(p->bell);
	if (p->memory_fd >= 0)
		close(p->memory_fd);
	*p = (struct exn_port){.sock = -1, .bell = -1, .memory_fd = -1};
}

// forget drops the grants of peers that have ended. Those with handles stay until they have none,
// but are no longer found.
static void forget(struct exn_port *p)
{
	for (struct exn_grant **at = &p->grants; *at != NULL;) {
		struct exn_grant *g = *at;
		if (!exn_gone(g) || g->handles > 0) {
			exn_peer_step(&g->state, EXN_ON_FORGET);
			at = &g->next;
			continue;
		}
		exn_group_drop(p, g);
		*at = g->next;
		free_grant(p, g);
	}
}

enum exn_status exn_port_connect(struct exn_port *p, uint16_t node, uint16_t vpid, struct exn_grant **out)
{
	struct exn_msg m = {.op = EXN_CONNECT, .node = node, .vpid = vpid};
	int fds[EXN_FDS];
	look(p);
	forget(p);
	for (struct exn_grant *g = p->grants; g != NULL; g = g->next)
		if (g->state != EXN_FORGOTTEN && g->node == node && g->vpid == vpid) {
			*out = g;
			return EXN_OK;
		}
	struct exn_grant *g = calloc(1, sizeof(*g));
	if (g == NULL)
		return EXN_NO_MEMORY;
	enum exn_status s = exn_port_ask(p, &m, fds);
	g->node = node;
	g->vpid = vpid;
	g->self = p->node;
	g->base = m.a;
	g->far = (m.b & 1) != 0;
	g->bell = fds[1];
	if (s == EXN_OK && (fds[0] < 0 || fds[1] < 0 || !flow_map(p->unit, fds[0], &g->out)))
		s = EXN_NO_MEMORY;
	if (s == EXN_OK && p->unit == EXN_RMA && !g->far) {
		g->memory = exn_node_map(fds[2], EXN_MEMORY, true);
		g->table = exn_node_map(fds[3], EXN_TABLE, false);
		if (g->memory == NULL || g->table == NULL)
			s = EXN_NO_MEMORY;
	}
	fds[1] = -1; // the grant keeps it
	exn_node_close(fds);
	if (s != EXN_OK) {
		free_grant(p, g);
		return s;
	}
	g->next = p->grants;
	p->grants = g;
	*out = g;
	return EXN_OK;
}

// works returns whether the writer of a flow works on this port's memory: a peer of this host, or
// the node, for a port on another host or for this one's operations there.
static bool works(const struct exn_flow *f)
{
	return __atomic_load_n(exn_flow_word(f, EXN_FLOW_BUSY), __ATOMIC_ACQUIRE) != 0 ||
	       __atomic_load_n(exn_flow_word(f, EXN_FLOW_OWN), __ATOMIC_ACQUIRE) != 0;
}

// see looks at a flow in a round. It lowers all to the last round in which the writer did not work,
// and returns whether it works now.
static bool see(struct exn_flow *f, uint64_t round, uint64_t *all)
{
	if (!works(f))
		f->idle = round;
	*all = f->idle < *all ? f->idle : *all;
	return f->idle < round;
}

uint64_t exn_port_idle(struct exn_port *p)
{
	if (__atomic_load_n((uint64_t *)p->page, __ATOMIC_ACQUIRE) != p->events)
		look(p);
	const bool dead = exn_dead(p);
	uint64_t all = ++p->round;
	for (unsigned i = 0; i < p->in_count; i++) {
		struct exn_inflow *f = &p->in[i];
		if (f->far ? !dead : f->state != EXN_ENDED) // what a killed process counted stays
			(void)see(&f->flow, p->round, &all);
	}
	for (struct exn_left **at = &p->left, *l; !dead && (l = *at) != NULL;) {
		if (see(&l->flow, p->round, &all)) {
			at = &l->next;
		} else {
			*at = l->next;
			flow_unmap(p->unit, &l->flow);
			free(l);
		}
	}
	return all;
}

// drop removes the i-th flow. Its writer has ended and its messages have been read. It stays, to be
// dropped later, where there is no memory to note that the node still works.
static void drop(struct exn_port *p, unsigned i)
{
	struct exn_inflow *f = &p->in[i];
	bool left = f->far && works(&f->flow);
	struct exn_left *l = left ? malloc(sizeof(*l)) : NULL;
	if (left && l == NULL) {
		p->turn = i + 1;
		return;
	}
	if (l != NULL) {
		*l = (struct exn_left){p->left, f->flow};
		p->left = l;
	} else {
		flow_unmap(p->unit, &f->flow);
	}
	p->in[i] = p->in[--p->in_count];
}

bool exn_port_take(struct exn_port *p, void *data, uint64_t *word, uint16_t *node, uint16_t *vpid)
{
	if (__atomic_load_n((uint64_t *)p->page, __ATOMIC_RELAXED) != p->events)
		look(p);
	unsigned n = p->in_count;
	for (unsigned k = 0; k < n; k++) {
		unsigned i = p->turn < p->in_count ? p->turn : 0;
		struct exn_inflow *f = &p->in[i];
		if (exn_flow_take(&f->flow, data, word)) {
			*node = f->node;
			*vpid = f->vpid;
			p->turn = n > 1 ? i + 1 : 0;
			return true;
		}
		if (f->state == EXN_ENDED) {
			drop(p, i);
			continue;
		}
		p->turn = i + 1;
	}
	if (++p->idle % LOOK_EVERY == 0) // a node that is killed counts no event
		look(p);
	return false;
}

static bool any(struct exn_port *p)
{
	if (exn_dead(p) || __atomic_load_n((uint64_t *)p->page, __ATOMIC_ACQUIRE) != p->events)
		return true;
	for (unsigned i = 0; i < p->in_count; i++)
		if (p->in[i].state == EXN_ENDED || exn_flow_ready(&p->in[i].flow))
			return true;
	return false;
}

static void arm(struct exn_port *p, uint32_t on)
{
	for (unsigned i = 0; i < p->in_count; i++)
		exn_flow_arm(&p->in[i].flow, on);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

bool exn_port_arm(struct exn_port *p)
{
	char bytes[4096];
	struct pollfd f[2] = {{.fd = p->bell, .events = POLLIN}, {.fd = p->sock, .events = POLLIN}};
	(void)poll(f, 2, 0);
	if (f[0].revents != 0)
		(void)!read(p->bell, bytes, sizeof(bytes));
	if (f[1].revents != 0) { // a node that is killed counts no event
		look(p);
		return false;
	}
	arm(p, 1);
	if (!any(p))
		return true;
	arm(p, 0);
	return false;
}

void exn_port_sleep(struct exn_port *p)
{
	for (int i = 1; i <= SPINS; i++) {
		if (any(p))
			return;
		if (i % SPINS_PER_YIELD == 0)
			sched_yield();
#ifdef __x86_64__
		__builtin_ia32_pause();
#endif
	}
	arm(p, 1);
	if (!any(p)) {
		char bytes[4096];
		struct pollfd f[2] = {{.fd = p->bell, .events = POLLIN}, {.fd = p->sock, .events = POLLIN}};
		(void)poll(f, 2, -1); // returns at a signal, too: the caller looks again
		if (f[1].revents != 0)
			look(p);
		// Not until it is empty: a peer may fill it all the time.
		if (f[0].revents != 0)
			(void)!read(p->bell, bytes, sizeof(bytes));
	}
	arm(p, 0);
}

// ring wakes the owner of a bell, which is a pipe. Its reader may have ended: SIGPIPE must not
// end this process, too.
static void ring(struct exn_grant *g)
{
	sigset_t broken, before;
	sigemptyset(&broken);
	sigaddset(&broken, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &broken, &before);
	// A full pipe needs no byte: the reader wakes up anyway.
	if (write(g->bell, "", 1) < 0 && errno == EPIPE) {
		exn_peer_step(&g->state, EXN_ON_END);
		if (sigismember(&before, SIGPIPE) == 0)
			sigtimedwait(&broken, NULL, &(struct timespec){0});
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void exn_port_commit(struct exn_port *p, struct exn_grant *g, uint64_t word)
{
	exn_flow_commit(&g->out, word);
	exn_count(p, EXN_SENT, 1);
	if (exn_flow_must_wake(&g->out))
		ring(g);
}

bool exn_port_wait(struct exn_port *p, struct exn_grant *g, unsigned *round)
{
	if (__atomic_load_n((uint64_t *)p->page, __ATOMIC_RELAXED) != p->events)
		look(p);
	if (exn_gone(g) || exn_dead(p))
		return false;
	unsigned n = (*round)++;
	if (n == 0)
		exn_count(p, EXN_WAITS, 1);
	if (n < WAIT_SPINS)
		sched_yield();
	else // the peer does not run, or does not read
		nanosleep(&(struct timespec){.tv_nsec = n < 2 * WAIT_SPINS ? 20000 : 500000}, NULL);
	if (n % 256 == 255 && !node_lives(p))
		return false;
	return true;
}

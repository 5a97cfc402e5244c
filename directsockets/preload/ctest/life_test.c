// The life of a connection: the table is that of SPEC 9.6, and random walks over clients and
// servers, with a broker whose answers come twice, late or never, with forks and with programs that
// give direct sockets up, make no other step, keep in each state what belongs to it, and lose
// nothing. Then the same with each row of the table left out, or leading nowhere, in turn: some
// walk must find it.
#include "ends.h"

#include <poll.h>
#include <sys/wait.h>

// ---- the table

static const char *const states[] = {"ended", "new", "connecting", "known", "uncounted", "settling", "unwanted", "forgotten", "plain", "left", "early",
				     "claimed", "granted", "offered", "up"};
static const char *const events[] = {"socket", "accept", "connect", "defer", "inherit", "connected", "handle", "abandon", "forget", "begin", "exclude", "claim",
				     "grant", "segment", "attached", "leave", "none", "give-up", "end"};

static const char *name_of(int state) { return state == CONN_ANY ? "any" : states[state]; }

static int count(void)
{
	int n = 0;

	while (ds_life_steps[n].from != CONN_NO_STEP)
		n++;
	return n;
}

static void compare(const char *path)
{
	char line[512], from[32], event[32], to[32], of[32];
	FILE *f = fopen(path, "r");
	bool in = false;
	int rows = 0;

	CHECK(f, "%s: %s", path, strerror(errno));
	while (f && fgets(line, sizeof line, f)) {
		if ((line[0] == '9' && line[1] == '.') || line[0] == '#')
			in = !strncmp(line, "9.6", 3);
		if (!in || sscanf(line, "| %31[a-z-] | %31[a-z-] | %31[a-z-] | %31[a-zCG] |", from, event, to, of) != 4 || !strcmp(from, "state") || !strcmp(of, "Go"))
			continue;
		int has = 0;
		for (const struct ds_step *t = ds_life_steps; t->from != CONN_NO_STEP; t++)
			has += !strcmp(name_of(t->from), from) && !strcmp(events[t->what], event) && !strcmp(name_of(t->to), to);
		CHECK(has == 1, "the library has not: %s, %s, %s", from, event, to);
		rows++;
	}
	if (f)
		fclose(f);
	CHECK(rows == count(), "SPEC 9.6 has %d steps, the library %d", rows, count());
}

// ---- a mutant: the table with a fault

static struct ds_step changed[64];
static int mutant = -1; // twice the number of its row, and 1 if the row is there, but leads nowhere

static void mutate(void)
{
	int n = count(), out = 0;

	for (int i = 0; i <= n; i++) {
		struct ds_step s = ds_life_steps[i];

		if (i == mutant / 2 && mutant % 2 == 0)
			continue;
		if (i == mutant / 2)
			s.to = s.from == CONN_ANY ? CONN_PLAIN : s.from;
		changed[out++] = s;
	}
	ds_life_table = changed;
}

// ---- walks

enum { PAIRS = 3, STEPS = 120 };

struct walker {
	struct side a;
	bool there, given_up, shut, read_end;
	bool busy; // another thread is in a call on the shadow
	uint64_t sent, got;
};
static struct pair_of {
	struct walker w[2];
	bool shared; // another process has had one of the ends: it may stay on TCP
} pairs[PAIRS];
static unsigned long reached[sizeof states / sizeof *states], forked, number;

static uint8_t nth(uint64_t i, int side) { return (uint8_t)(i * 131 + (i >> 8) * 7 + (uint64_t)side * 99); }

// What holds for the handle of w, whatever came before.
static void hold(struct walker *w)
{
	struct ds_life *l = &w->a.life;
	struct ds_sock *s = l->s;
	int is = ds_life_is(l);

	CHECK(ds_life_missteps == 0, "%u steps that the table has not", ds_life_missteps);
	CHECK(w->there == (is != CONN_ENDED), "there %d, and %s", w->there, states[is]);
	CHECK((is == CONN_KNOWN || is == CONN_FORGOTTEN) == (s != NULL), "%s with handle %d", states[is], s != NULL);
	CHECK(!w->given_up || s || !w->there || is == CONN_PLAIN, "given up, and %s", states[is]);
	reached[is]++;
	if (!s)
		return;
	int state = ds_state_of(s);
	reached[state]++;
	bool segment = state == CONN_GRANTED || state >= CONN_OFFERED || (state == CONN_LEFT && s->seg.mem);
	CHECK(state == CONN_PLAIN || state >= CONN_LEFT, "a handle that is %s", states[state]);
	CHECK(s->life == l, "another's handle");
	CHECK((s->seg.mem != NULL) == segment && (s->seg.bell >= 0) == segment, "%s with a segment %d, a bell %d", states[state], s->seg.mem != NULL, s->seg.bell);
	CHECK(s->offered[1] < 0 || state == CONN_OFFERED, "%s, and the offer is kept", states[state]);
	CHECK(s->granted < 0 || state == CONN_GRANTED, "%s, and the granted segment is kept", states[state]);
	CHECK(s->side == 1 || (state != CONN_CLAIMED && state != CONN_GRANTED), "a client is %s", states[state]);
	CHECK(state != CONN_UP || s->side == 1 || ds_seg_peer_state(&s->seg) == DS_ATTACHED, "up before the server has attached");
	CHECK(!w->given_up || state <= CONN_LEFT || state >= CONN_OFFERED, "given up, and %s", states[state]);
	CHECK(!w->given_up || !(ds_direct(s) & 1), "given up, and direct"); // inbound, what a peer that has ended has left may still come
	CHECK(is != CONN_FORGOTTEN || ds_direct(s) == 0, "forgotten, and direct");
}

static void hold_all(void)
{
	for (int i = 0; i < PAIRS; i++)
		for (int k = 0; k < 2; k++)
			hold(&pairs[i].w[k]);
}

static bool calls_us(struct walker *w) { return w->there && ds_life_is(&w->a.life) == CONN_KNOWN; }

static ssize_t put_by(struct walker *w, const void *p, size_t n)
{
	return calls_us(w) ? put(&w->a, p, n, MSG_DONTWAIT) : send(w->a.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t get_by(struct walker *w, void *p, size_t n) { return calls_us(w) ? get(&w->a, p, n, MSG_DONTWAIT) : recv(w->a.fd, p, n, MSG_DONTWAIT); }

static void sends(struct pair_of *p, int side)
{
	struct walker *w = &p->w[side];
	uint8_t b[300];
	size_t n = 1 + below(sizeof b);

	if (!w->there || w->shut || !p->w[!side].there)
		return;
	for (size_t i = 0; i < n; i++)
		b[i] = nth(w->sent + i, side);
	ssize_t r = put_by(w, b, n);
	CHECK(r > 0 || errno == EAGAIN, "send: %s", strerror(errno));
	if (r > 0)
		w->sent += (uint64_t)r;
}

static void receives(struct pair_of *p, int side)
{
	struct walker *w = &p->w[side], *from = &p->w[!side];
	uint8_t b[500];

	if (!w->there || w->read_end)
		return;
	ssize_t r = get_by(w, b, 1 + below(sizeof b));
	if (r < 0) {
		CHECK(errno == EAGAIN || !from->there, "recv: %s", strerror(errno));
		w->read_end = errno != EAGAIN;
	} else if (r == 0) {
		CHECK(w->got == from->sent && (from->shut || !from->there), "an end after %lu of %lu", w->got, from->sent);
		w->read_end = true;
	}
	for (ssize_t i = 0; i < r; i++)
		CHECK(b[i] == nth(w->got + (uint64_t)i, !side), "byte %lu is another", w->got + (uint64_t)i);
	if (r > 0)
		w->got += (uint64_t)r;
}

// ---- how a connection begins, and another thread that gives it up while its handle is made

static struct ds_life *unwanted; // by ds_notices' open

static int open_of(struct ds_life *l, int fd)
{
	CHECK(ds_life_settles(l), "asked about one that is %s", states[ds_life_is(l)]);
	if (l == unwanted) {
		CHECK(ds_life_leave(l), "it cannot be given up while its handle is made");
		CHECK(ds_life_is(l) == CONN_UNWANTED, "it is %s", states[ds_life_is(l)]);
		unwanted = NULL;
	}
	return fd;
}

static int still(struct ds_sock *s, int fd)
{
	(void)s;
	return fd;
}
static void nothing(struct ds_sock *s) { (void)s; }
static const struct ds_notices above = {nothing, nothing, still, open_of, NULL, NULL, NULL};

static void settle(struct walker *w)
{
	unwanted = below(6) ? NULL : &w->a.life;
	w->given_up |= unwanted != NULL;
	ds_life_connected(&w->a.life, w->a.fd);
	CHECK(!unwanted, "the layer above was not asked");
	CHECK(ds_life_is(&w->a.life) == CONN_KNOWN, "it is %s", states[ds_life_is(&w->a.life)]);
	w->a.s = w->a.life.s;
}

static void begin(struct pair_of *p)
{
	struct walker *c = &p->w[0], *s = &p->w[1];
	bool early = !below(3), inherits = !below(8);

	memset(p, 0, sizeof *p);
	c->there = s->there = true;
	c->a.fd = socket(AF_INET, SOCK_STREAM, 0);
	ds_life_begin(&c->a.life, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN);
	hold(c);
	if (!inherits) {
		CHECK(ds_life_connect(&c->a.life, early), "connect on a new one");
		CHECK(!ds_life_connect(&c->a.life, early), "a second connect");
		hold(c);
	}
	CHECK(connect(c->a.fd, (struct sockaddr *)&at, sizeof at) == 0, "%s", strerror(errno));
	s->a.fd = accept(listener, NULL, NULL);
	ds_life_begin(&s->a.life, CONN_ON_ACCEPT, DS_NONBLOCK_UNKNOWN);
	hold(s);
	if (inherits) {
		struct ds_sock *made = ds_inherited(c->a.fd, 0);

		CHECK(made, "no handle");
		ds_life_inherit(&c->a.life, made);
		c->a.s = made;
	} else {
		settle(c);
	}
	if (!below(10)) { // it stays the kernel's
		CHECK(ds_life_leave(&s->a.life), "it has no handle");
		s->given_up = true;
	} else {
		settle(s);
	}
	hold(c);
	hold(s);
}

// Another thread begins a call on the shadow, or ends it: no segment is attached meanwhile.
static void busy(struct walker *w)
{
	if (!calls_us(w) || !w->a.s->sh)
		return;
	w->busy = !w->busy;
	if (w->busy)
		ds_users_begin(w->a.s);
	else
		ds_users_end(w->a.s);
}

static void end(struct pair_of *p, int side)
{
	struct walker *w = &p->w[side];

	if (!w->there)
		return;
	if (w->busy)
		busy(w);
	ds_life_end(&w->a.life, w->a.fd);
	close(w->a.fd);
	w->there = false;
	hold(w);
}

// A child has each handle whole, asks the broker for nothing, and leaves.
static void forks(void)
{
	bool direct = below(2); // the child leaves those with a segment, too
	int status;

	ds_gen++;
	ds_fork_prepare();
	pid_t pid = fork();
	if (pid == 0) {
		ds_fork_child();
		for (int i = 0; i < PAIRS; i++)
			for (int k = 0; k < 2; k++) {
				struct walker *w = &pairs[i].w[k];
				struct ds_sock *s = w->a.life.s;

				hold(w);
				if (!s)
					continue;
				CHECK(ds_state_of(s) != CONN_CLAIMED && ds_state_of(s) != CONN_GRANTED && s->offered[1] < 0, "the parent's");
				bool leaves = s->sh && (direct || !ds_has_segment(s));
				uint32_t refs = s->sh ? s->sh->refs : 0;
				ds_leave(s, direct);
				ds_leave(s, direct); // which does nothing more
				CHECK(!leaves || (ds_state_of(s) == CONN_LEFT && s->sh->refs == refs - 1), "%s, %u of %u", states[ds_state_of(s)], s->sh->refs, refs);
				hold(w);
			}
		struct ds_life settling = {.state = CONN_SETTLING}, other = {.state = CONN_UNWANTED};
		ds_life_abandon(&settling);
		ds_life_abandon(&other);
		CHECK(ds_life_is(&settling) == CONN_PLAIN && ds_life_is(&other) == CONN_PLAIN, "a parent's thread");
		_exit(failures != 0);
	}
	ds_gen++;
	ds_fork_parent(pid);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child: status %x", status);
	for (int i = 0; i < PAIRS; i++)
		for (int k = 0; k < 2; k++)
			if (!direct && pairs[i].w[k].a.life.s && ds_has_segment(pairs[i].w[k].a.life.s))
				pairs[i].shared = true; // its child has not left it, as that has a segment
	forked++;
}

static void gives_up(struct pair_of *p, int side)
{
	struct walker *w = &p->w[side];

	if (!w->there)
		return;
	ds_life_demote(&w->a.life, w->a.fd);
	w->given_up = true;
	hold(w);
	if (!calls_us(w) || below(2) || !ds_on_shadow_rx(w->a.s) || !ds_on_shadow_tx(w->a.s))
		return;
	ds_life_forget(&w->a.life);
	CHECK(ds_life_is(&w->a.life) == CONN_FORGOTTEN, "it is %s", states[ds_life_is(&w->a.life)]);
}

static void step(void)
{
	struct pair_of *p = &pairs[below(PAIRS)];
	int side = (int)below(2);

	switch (below(42)) {
	default:
		sends(p, side);
		break;
	case 0 ... 14:
		receives(p, side);
		break;
	case 15:
		if (!below(2))
			gives_up(p, side);
		break;
	case 16:
		if (!below(4))
			forks();
		break;
	case 17:
		__atomic_store_n(broker_fault, (int)below(BROKER_DIES + 1), __ATOMIC_RELEASE);
		break;
	case 18:
		if (calls_us(&p->w[side]))
			ds_stream(p->w[side].a.s, below(2));
		break;
	case 19:
		if (calls_us(&p->w[side])) {
			ds_renumbered(p->w[side].a.s);
			p->w[side].given_up |= p->w[side].busy && ds_plain(p->w[side].a.s); // the call goes on by a number that is gone
		}
		break;
	case 20:
		if (!below(8)) {
			end(p, side);
			end(p, !side);
			begin(p);
		}
		break;
	case 21:
		if (!below(4))
			__atomic_store_n(broker_refuses, 1, __ATOMIC_RELEASE);
		break;
	case 22:
		usleep(200);
		break;
	case 23 ... 24:
		busy(&p->w[side]);
		break;
	case 25:
		if (calls_us(&p->w[0]) && ds_state_of(p->w[0].a.s) == CONN_UP)
			ds_on(p->w[0].a.s, CONN_ON_ATTACHED); // another thread has found it, too
	}
	hold_all();
}

// With a broker that does as it should, all is received, and what was not given up becomes direct.
static void settle_down(void)
{
	int64_t end = ds_now() + (mutant >= 0 ? 3000000000 : 60000000000);

	__atomic_store_n(broker_fault, BROKER_FINE, __ATOMIC_RELEASE);
	__atomic_store_n(broker_refuses, 0, __ATOMIC_RELEASE);
	for (int i = 0; i < PAIRS && !failures; i++) {
		struct pair_of *p = &pairs[i];
		struct walker *c = &p->w[0], *s = &p->w[1];
		bool direct = !p->shared && !c->given_up && !s->given_up;

		for (int k = 0; k < 2; k++) {
			if (calls_us(&p->w[k]))
				ds_stream(p->w[k].a.s, false);
			if (p->w[k].busy)
				busy(&p->w[k]);
		}
		for (bool all = false; !failures && ds_now() < end;) {
			for (int k = 0; k < 2; k++) {
				if (all || p->w[k].sent < 1 << 16) // a direction becomes direct by a send
					sends(p, k);
				receives(p, !k);
			}
			hold(c);
			hold(s);
			all = c->got == s->sent && s->got == c->sent;
			bool up = calls_us(c) && calls_us(s) && ds_state_of(c->a.s) == CONN_UP && ds_state_of(s->a.s) == CONN_UP && ds_direct(c->a.s) == 3 && ds_direct(s->a.s) == 3;
			bool asked = calls_us(s) && ds_state_of(s->a.s) == CONN_CLAIMED;
			if (all && !asked && (up || !direct))
				break;
			usleep(all ? 500 : 0);
		}
		CHECK(ds_now() < end, "pair %d: %lu of %lu, %lu of %lu; %s, %s", i, c->got, s->sent, s->got, c->sent, c->a.life.s ? states[ds_state_of(c->a.life.s)] : "-",
		      s->a.life.s ? states[ds_state_of(s->a.life.s)] : "-");
	}
}

static void walk(void)
{
	number++;
	for (int i = 0; i < PAIRS; i++)
		begin(&pairs[i]);
	for (int i = 0; i < STEPS && !failures; i++)
		step();
	if (!below(4))
		settle_down();
	for (int i = 0; i < PAIRS; i++) {
		int first = (int)below(2);

		end(&pairs[i], first);
		while (pairs[i].w[!first].there && !pairs[i].w[!first].read_end && !failures)
			receives(&pairs[i], !first);
		end(&pairs[i], !first);
	}
}

// Connections that get no handle.
static void without_handle(void)
{
	for (int i = 0; i < 2; i++) {
		struct walker w = {.there = true};

		w.a.fd = socket(AF_INET, SOCK_STREAM, 0);
		ds_life_begin(&w.a.life, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN);
		ds_life_connect(&w.a.life, false);
		unwanted = i ? &w.a.life : NULL;
		ds_life_connected(&w.a.life, w.a.fd); // which has no peer
		CHECK(ds_life_is(&w.a.life) == CONN_PLAIN, "it is %s", states[ds_life_is(&w.a.life)]);
		hold(&w);
		ds_life_end(&w.a.life, w.a.fd);
		close(w.a.fd);
	}
	for (int i = 0; i < 2; i++) { // it is given up before it is connected
		struct ds_life l = {0};

		ds_life_begin(&l, CONN_ON_SOCKET, DS_NONBLOCK_UNKNOWN);
		if (i)
			ds_life_connect(&l, false);
		CHECK(ds_life_leave(&l) && ds_life_is(&l) == CONN_PLAIN && !ds_life_leave(&l), "it is %s", states[ds_life_is(&l)]);
		ds_life_end(&l, -1);
	}
}

// The broker dies before it answers a claim, and the client has given up: nobody but the server
// asks for another one.
static void broker_dies(void)
{
	struct walker c = {.there = true}, s = {.there = true};
	int64_t end = ds_now() + 60000000000;

	connect_to(&c.a);
	accept_from(&s.a);
	__atomic_store_n(broker_fault, BROKER_DIES, __ATOMIC_RELEASE);
	while (ds_state_of(s.a.s) != CONN_CLAIMED && ds_now() < end) {
		put(&c.a, "x", 1, MSG_DONTWAIT);
		get(&s.a, &(char){0}, 1, MSG_DONTWAIT); // the last one asks
	}
	hold(&s);
	ds_fall_back(c.a.s, c.a.fd);
	while (ds_state_of(s.a.s) == CONN_CLAIMED && ds_now() < end) {
		get(&s.a, &(char){0}, 1, MSG_DONTWAIT);
		usleep(100);
	}
	CHECK(ds_now() < end, "it waits for an answer that is lost");
	hang_up(&c.a);
	hang_up(&s.a);
}

// The server's socket becomes a standard stream while it waits for the answer to its claim: the
// segment that it is granted waits until it is none, as the client offers no second one.
static void stream_while_granted(void)
{
	struct walker c = {.there = true}, s = {.there = true};
	int64_t end = ds_now() + 60000000000;

	connect_to(&c.a);
	accept_from(&s.a);
	while (ds_state_of(s.a.s) != CONN_CLAIMED && ds_now() < end) {
		put(&c.a, "x", 1, MSG_DONTWAIT);
		get(&s.a, &(char){0}, 1, MSG_DONTWAIT);
	}
	ds_stream(s.a.s, true);
	while (ds_state_of(s.a.s) == CONN_CLAIMED && ds_now() < end)
		get(&s.a, &(char){0}, 1, MSG_DONTWAIT);
	CHECK(ds_state_of(s.a.s) == CONN_GRANTED, "it is %s", states[ds_state_of(s.a.s)]);
	reached[CONN_GRANTED]++;
	get(&s.a, &(char){0}, 1, MSG_DONTWAIT);
	CHECK(ds_state_of(s.a.s) == CONN_GRANTED, "a stream is %s", states[ds_state_of(s.a.s)]);
	ds_stream(s.a.s, false);
	get(&s.a, &(char){0}, 1, MSG_DONTWAIT);
	CHECK(ds_state_of(s.a.s) == CONN_UP, "the server is %s", states[ds_state_of(s.a.s)]);
	put(&c.a, "x", 1, MSG_DONTWAIT);
	CHECK(ds_state_of(c.a.s) == CONN_UP, "the client is %s", states[ds_state_of(c.a.s)]);
	hang_up(&c.a);
	hang_up(&s.a);
}

// A client is switched off while its offer waits, and on again: both directions become direct all
// the same. When it is switched off once more, the server counts that, though it only receives.
static void switched_while_offered(void)
{
	struct walker c = {.there = true}, s = {.there = true};
	int64_t end = ds_now() + (mutant >= 0 ? 3000000000 : 60000000000);
	uint8_t off = 1;

	connect_to(&c.a);
	accept_from(&s.a);
	while (ds_state_of(c.a.s) != CONN_OFFERED && ds_now() < end)
		put(&c.a, "x", 1, MSG_DONTWAIT);
	CHECK(ds_state_of(c.a.s) == CONN_OFFERED, "it is %s", states[ds_state_of(c.a.s)]);
	if (failures)
		return;
	c.a.s->seg.off = &off;
	for (int i = 0; i < 3; i++)
		put(&c.a, "x", 1, MSG_DONTWAIT);
	off = 0;
	while (ds_direct(c.a.s) != 3 && ds_now() < end) {
		put(&c.a, "x", 1, MSG_DONTWAIT);
		put(&s.a, "x", 1, MSG_DONTWAIT);
		get(&s.a, &(char){0}, 1, MSG_DONTWAIT);
		get(&c.a, &(char){0}, 1, MSG_DONTWAIT);
	}
	CHECK(ds_direct(c.a.s) == 3, "directions that are direct: %d", ds_direct(c.a.s));

	const uint64_t *counted = &s.a.s->seg.counters[DS_C_RX_DEMOTE], before = *counted;
	off = 1;
	while (*counted == before && ds_now() < end) {
		put(&c.a, "x", 1, MSG_DONTWAIT);
		get(&s.a, &(char){0}, 1, MSG_DONTWAIT);
	}
	CHECK(*counted == before + 1, "the server has counted %lu returns", *counted - before);
	hang_up(&c.a);
	hang_up(&s.a);
}

// ---- mutants, each in a process of its own

#if defined(ONCE) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MUTANTS = 0 };
#else
enum { MUTANTS = 1 };
#endif

// A rule would have to exclude a connection: rules are read once.
static bool elsewhere(const struct ds_step *s) { return s->what == CONN_ON_EXCLUDE; }

// mutant_start runs the walks with a fault, beside others: with many faults a walk waits for long.
static pid_t mutant_start(const char *self, const char *spec, int m)
{
	char text[16];
	pid_t pid;

	snprintf(text, sizeof text, "%d", m);
	pid = fork();
	if (pid == 0) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(0);
		execl(self, self, spec, text, NULL);
		_exit(0);
	}
	CHECK(pid > 0, "%s", strerror(errno));
	return pid;
}

static void mutants(const char *self, const char *spec)
{
	enum { AT_ONCE = 16 };
	int n = MUTANTS ? 2 * count() : 0, found = 0, all = 0, begun = 0, m = 0;
	pid_t pids[sizeof changed / sizeof *changed * 2] = {0};

	while (m < n || all < begun) {
		if (m < n && begun - all < AT_ONCE) {
			const struct ds_step *s = &ds_life_steps[m / 2];
			if (!elsewhere(s) && !(m % 2 && s->from == s->to)) {
				pids[m] = mutant_start(self, spec, m);
				begun++;
			}
			m++;
			continue;
		}
		int status, ended = 0;
		pid_t pid = wait(&status);
		while (ended < m && pids[ended] != pid)
			ended++;
		CHECK(pid > 0 && ended < m, "wait says %d: %s", (int)pid, strerror(errno));
		if (pid <= 0 || ended == m)
			return;
		const struct ds_step *s = &ds_life_steps[ended / 2];
		pids[ended] = 0;
		all++;
		found += status != 0;
		CHECK(status != 0, "no walk finds that %s, %s %s", name_of(s->from), events[s->what], ended % 2 ? "leads nowhere" : "is left out");
	}
	if (MUTANTS)
		printf("life: %d of %d faults found\n", found, all);
}

// unreached is a state that no walk has come to, or -1. Those that the walks do not look at are
// left out: settling and unwanted last for a moment, left is seen in a child.
static int unreached(void)
{
	for (int i = 0; i < (int)(sizeof states / sizeof *states); i++)
		if (!reached[i] && i != CONN_SETTLING && i != CONN_UNWANTED && i != CONN_LEFT)
			return i;
	return -1;
}

int main(int argc, char **argv)
{
	char path[64];
	const char *spec = argc > 1 ? argv[1] : "../SPEC.md", *many = getenv("EXN_LIFE_WALKS");
	int walks = many ? atoi(many) : 60;

	compare(spec);
	if (argc > 2) {
		mutant = atoi(argv[2]);
		mutate();
		walks *= 20;
		alarm(30);
	}
	pid_t broker = ends_start(path, sizeof path);
	ds_tell(&above);
	without_handle();
	broker_dies();
	stream_while_granted();
	switched_while_offered();
	for (int i = 0; i < walks || (mutant < 0 && i < walks * 50 && (!forked || unreached() >= 0)); i++) {
		if (failures)
			break;
		walk();
	}
	ends_stop(broker, path);
	if (mutant >= 0)
		return failures != 0;
	CHECK(unreached() < 0 || failures, "no walk comes to %s", states[unreached()]);
	CHECK(forked || failures, "no walk forks");
	if (!failures && !many)
		mutants("/proc/self/exe", spec);
	printf("life: %lu walks, %d failed\n", number, failures);
	return failures != 0;
}

// Leaving direct: random walks of both ends of real connections, against the rule by position and
// the tables of transitions in SPEC 5.5 and 9.4, 9.5.
//
// A walk sends numbered bytes both ways, lets receivers fall back, and ends one side: by close,
// shutdown, or as if it was killed; the network may be cut on the way. Whatever comes, the bytes
// that a side reads are those that the other has sent, in order, and an end of file comes after the
// last of them. Then the same with
// faults planted, each of which a walk has to find. EXN_LEAVE_WALKS is how many walks there are at
// least, 100 by itself.
#include "ends.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>

// ---- the tables

enum { STATES = 16 };
static const char *const rx_names[] = {"shadow", "catch-up", "direct", "over", "fallen-back", "returning", "rest", "back", "over"};
static const char *const tx_names[] = {"shadow", "paused", "direct", "over", "returning", "back", "over"};

// may[a][b]: a leads to b, in any number of steps
struct table {
	const char *const *names;
	int states, broken;
	bool may[STATES][STATES];
};
static struct table rx = {.names = rx_names, .states = 9, .broken = RX_BROKEN}, tx = {.names = tx_names, .states = 7, .broken = TX_BROKEN};
static const char *const events[] = {"promote", "reached", "cut", "shutdown", "demote", "pause", "resume", "gone", "fallback", "queue", "returned",
				     "held", "ended", "read", "fallen-back", "leave", "written", "failed", "killed"};

// Has the library the step? A name may be of several states ("over").
static int has(const struct table *t, const struct ds_step *step, const char *from, const char *event, const char *to)
{
	int n = 0;

	for (; step->from != DS_NO_STEP; step++) {
		const char *next = step->to == RX_BEFORE ? "before" : t->names[step->to];

		n += !strcmp(t->names[step->from], from) && !strcmp(events[step->what], event) && !strcmp(next, to);
	}
	return n;
}

static int count(const struct ds_step *step)
{
	int n = 0;

	while (step++->from != DS_NO_STEP)
		n++;
	return n;
}

static void allow(struct table *t, const char *from, const char *to)
{
	for (int i = 0; i < t->states; i++)
		for (int k = 0; k < t->states; k++)
			if (!strcmp(t->names[i], from) && i != t->broken && k != t->broken &&
			    (!strcmp(t->names[k], to) || (!strcmp(to, "before") && k <= RX_DIRECT)))
				t->may[i][k] = true;
}

// the rows "| state | event | next state | ..." below the line that begins with head
static void read_table(struct table *t, const struct ds_step *steps, const char *path, const char *head)
{
	char line[512], from[32], event[32], to[32];
	FILE *f = fopen(path, "r");
	bool in = false;
	int rows = 0, ours = 0;

	CHECK(f, "%s: %s", path, strerror(errno));
	while (f && fgets(line, sizeof line, f)) {
		if ((line[0] == '9' && line[1] == '.') || line[0] == '#')
			in = !strncmp(line, head, strlen(head));
		if (in && sscanf(line, "| %31[a-z-] | %31[a-z-] | %31[a-z-] |", from, event, to) == 3 && strcmp(from, "state") && *event != '-') {
			allow(t, from, to);
			rows++;
			/* no segment is no sock; ds_break_for resets both directions */
			if (!strcmp(from, "tcp") || !strcmp(to, "tcp") || !strcmp(event, "reset"))
				continue;
			ours++;
			CHECK(has(t, steps, from, event, to) == 1, "%s: the library has not: %s, %s, %s", head, from, event, to);
		}
	}
	if (f)
		fclose(f);
	CHECK(rows > 5, "%s has %d rows", head, rows);
	CHECK(ours == count(steps), "%s has %d steps, the library %d", head, ours, count(steps));
	for (int k = 0; k < t->states; k++)
		for (int i = 0; i < t->states; i++)
			for (int j = 0; j < t->states; j++)
				t->may[i][j] |= t->may[i][k] && t->may[k][j];
}

// ---- a walk

enum plant {
	NOTHING,
	BELIEVE_THE_END, // the receiver forgets the queue once it has found RETURNED
	LESS,		 // it counts less than Q
	ONE_FURTHER,	 // it begins the rest one byte too early
	NO_REST,	 // it forgets the rest
	RESUME_LATE,	 // it goes back to the queue although the peer has set RETURNED
	FORGET,		 // the sender forgets what is not on the shadow
	PUBLISH,	 // the sender goes on in the queue when all is on the shadow
	GO_ON,		 // it goes on in the queue after PAUSE
	END_WELL,	 // it ends the shadow well, although nobody has the segment
	PLANTS,
};
static const char *const plants[] = {"nothing", "the receiver believes the shadow's end", "Q is less", "the rest begins one byte early", "no rest",
				     "the receiver resumes after RETURNED", "the sender forgets", "the sender publishes after RETURNED", "the sender publishes after PAUSE",
				     "a clean end without the segment"};
static enum plant planted;
static unsigned long visits[STATES], found, number, was_cut, was_paused, was_direct_again;

struct walker {
	struct side a;
	uint64_t sent, got;
	bool shut, ended, dead;
	bool reset_ok; // what it gets may end with a reset
	bool planted;  // a fault that is there once
	uint8_t off;   // what the broker says: SPEC 6.3
	bool raw;      // not only the library has read: it may have to reset, since the kernel does not tell all (conn/shadow.c)
};

// The bytes are the test's own: no sanitizer has to see each being made and compared.
#define UNSEEN __attribute__((no_sanitize("thread"), no_sanitize("address")))

UNSEEN static uint8_t numbered(uint64_t i, int side) { return (uint8_t)(i * 167 + (i >> 8) * 13 + (i >> 16) + (uint64_t)side * 101); }

// The bytes of a side from the first one on.
UNSEEN static void number_all(uint8_t *b, size_t n, uint64_t first, int side)
{
	for (size_t i = 0; i < n; i++)
		b[i] = numbered(first + i, side);
}

// The first of n bytes that is not as number_all makes it, or n.
UNSEEN static size_t first_other(const uint8_t *b, size_t n, uint64_t first, int side)
{
	size_t i = 0;

	while (i < n && b[i] == numbered(first + i, side))
		i++;
	return i;
}

static void wrong(const char *format, ...)
{
	va_list v;

	if (!found++ && planted == NOTHING) {
		failures++;
		printf("walk %lu: ", number);
		va_start(v, format);
		vprintf(format, v);
		va_end(v);
		printf("\n");
	}
}

// Changes what a library with the fault would have in its place.
static void plant(struct walker *w)
{
	struct ds_shared *h = w->a.s->sh;
	int r = ds_mode(&h->rx_mode), t = ds_mode(&h->tx_mode);

	if (planted == BELIEVE_THE_END && r == RX_RETURNING)
		h->rx_mode = RX_BACK;
	if (planted == NO_REST && r == RX_REST)
		h->rx_mode = RX_BACK;
	if (planted == RESUME_LATE && r == RX_RETURNING)
		h->rx_mode = RX_DIRECT;
	if (planted == LESS && r == RX_RETURNING && h->held > h->carried + 1 && !w->planted) {
		h->held = h->carried + 1 + below(h->held - h->carried - 1);
		w->planted = true;
	}
	if (planted == ONE_FURTHER && r == RX_RETURNING && !w->planted) {
		h->carried++;
		w->planted = true;
	}
	if (planted == FORGET && t == TX_RETURNING)
		h->tx_mode = TX_BACK;
	if (planted == PUBLISH && t == TX_BACK && (h->attention.word & DS_RETURNED)) {
		h->tx_mode = TX_DIRECT;
		__atomic_fetch_and((uint32_t *)(uintptr_t)&w->a.s->seg.peer->attention, ~(uint32_t)DS_FALLEN_BACK, __ATOMIC_RELAXED);
	}
	if (planted == GO_ON && t == TX_PAUSED)
		h->tx_mode = TX_DIRECT;
}

static void moved(const struct table *t, int from, int to, const char *what, bool breach_ok)
{
	if (from != to && !(to == t->broken ? breach_ok : t->may[from][to]))
		wrong("%s: from %s to %s", what, t->names[from], to == t->broken ? "broken" : t->names[to]);
}

#define STEP(w, what, call)                                                                                        \
	do {                                                                                                       \
		struct ds_shared *sh_ = (w)->a.s->sh;                                                              \
		int rx_ = ds_mode(&sh_->rx_mode), tx_ = ds_mode(&sh_->tx_mode);                                    \
		call;                                                                                              \
		visits[ds_mode(&sh_->rx_mode)]++;                                                                  \
		was_paused += tx_ == TX_DIRECT && ds_mode(&sh_->tx_mode) == TX_PAUSED;                             \
		was_direct_again += tx_ == TX_SHADOW && ds_mode(&sh_->tx_mode) == TX_DIRECT && sh_->tx.paused;     \
		moved(&rx, rx_, ds_mode(&sh_->rx_mode), what ", inbound", (w)->reset_ok || (w)->raw);                          \
		moved(&tx, tx_, ds_mode(&sh_->tx_mode), what ", outbound", (w)->reset_ok || (w)->raw);                         \
		plant(w);                                                                                          \
	} while (0)

static void sends(struct walker *w, struct walker *to)
{
	static uint8_t b[200000];
	size_t n = 1 + below(below(4) ? 3000 : sizeof b);
	ssize_t r;

	if (w->shut || w->dead || to->dead)
		return;
	number_all(b, n, w->sent, w->a.s->side);
	STEP(w, "send", r = put(&w->a, b, n, MSG_DONTWAIT));
	if (r > 0)
		w->sent += (uint64_t)r;
	else if (errno != EAGAIN)
		wrong("send: %s", strerror(errno));
}

// Something, or an end, is there to read.
static bool readable(struct walker *w)
{
	struct ds_ready r;
	struct pollfd p = {.fd = w->a.fd, .events = POLLIN | POLLRDHUP};

	STEP(w, "ready", r = ds_ready(w->a.s, w->a.fd, POLLIN | POLLRDHUP));
	return (r.now & (POLLIN | POLLRDHUP)) || ((r.kernel & POLLIN) && poll(&p, 1, 0) > 0);
}

// False: there is nothing.
static bool receives(struct walker *w, struct walker *from)
{
	static uint8_t b[100000];
	size_t n = 1 + below(below(3) ? 4000 : sizeof b);
	bool ready = readable(w), raw = ds_mode(&w->a.s->sh->rx_mode) == RX_RETURNING && !below(4), peek = !below(8);
	int there = -1, e, before = ds_mode(&w->a.s->sh->rx_mode);
	ssize_t r;

	if (w->ended)
		return false;
	if (!raw && below(2))
		STEP(w, "FIONREAD", ds_fionread(w->a.s, w->a.fd, &there));
	if (raw) {
		w->raw = true;
		STEP(w, "raw", r = recv(w->a.fd, b, n, MSG_DONTWAIT | (peek ? MSG_PEEK : 0)));
	} else {
		STEP(w, "recv", r = get(&w->a, b, n, MSG_DONTWAIT | (peek ? MSG_PEEK : 0)));
	}
	e = errno;
	if (r < 0 && e == EAGAIN) {
		if (there > 0)
			wrong("FIONREAD says %d, and nothing is there", there);
		return false;
	}
	if (!raw && !ready && r > 0 && (before == RX_DIRECT || before == RX_REST)) // the shadow's may have come meanwhile
		wrong("%zd bytes, and readiness said none, in %s", r, rx.names[ds_mode(&w->a.s->sh->rx_mode)]);
	if (r < 0) {
		if (!w->reset_ok && !w->raw)
			wrong("%s after %lu of %lu, in %s", strerror(e), w->got, from->sent, rx.names[ds_mode(&w->a.s->sh->rx_mode)]);
		w->ended = true;
	} else if (r == 0 && raw) {
		return true; // a rest may follow
	} else if (r == 0) {
		if (w->got != from->sent || !(from->shut || from->dead))
			wrong("an end of file after %lu of %lu, in %s", w->got, from->sent, rx.names[ds_mode(&w->a.s->sh->rx_mode)]);
		w->ended = true;
	} else {
		size_t same = first_other(b, (size_t)r, w->got, from->a.s->side);

		if (same < (size_t)r)
			wrong("byte %lu of %lu is another, in %s", w->got + same, from->sent, rx.names[ds_mode(&w->a.s->sh->rx_mode)]);
		if (!peek)
			w->got += (uint64_t)r;
	}
	return true;
}

// What the kernel does to the descriptors of a process that is killed; their numbers stay taken.
static void die(struct side *a)
{
	int fds[2] = {a->fd, a->s->seg.bell}, null = open("/dev/null", O_RDWR | O_CLOEXEC);

	broker_await();
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			dup3(null, fds[i], O_CLOEXEC);
	close(null);
}

static void ends(struct walker *w, struct walker *other)
{
	struct linger l = {1, 0};
	int how = (int)below(3);

	other->reset_ok = w->got < other->sent; // TCP resets, too
	if (how == 2) {
		other->reset_ok = true;
		setsockopt(w->a.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	}
	w->dead = true;
	if (below(2)) {
		hang_up(&w->a);
		w->a.fd = -1;
	} else {
		die(&w->a);
	}
}

// The receiver's buffer stays as it was (as_on_ethernet): one that shrinks below a window that the
// kernel has announced has it drop what comes, and the sender wait for timers that double.
static void small_buffers(int fd)
{
	int n = 4096 << below(4);

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof n);
}

static void drop(struct walker *w)
{
	if (w->a.fd >= 0)
		hang_up(&w->a);
}

// Direct, or on the way there.
static void begin(struct side *c, struct side *s)
{
	if (below(2)) {
		pair_up(c, s);
		return;
	}
	connect_to(c);
	accept_from(s);
	for (int i = 0; !ds_has_segment(c->s) || !ds_has_segment(s->s); i++)
		exchange(c, s, i);
}

static void walk(void)
{
	struct walker w[2] = {0};
	int steps = 20 + (int)below(200), side;

	number++;
	begin(&w[0].a, &w[1].a);
	for (int i = 0; i < 2; i++)
		w[i].a.s->seg.off = &w[i].off;
	if (below(2)) {
		small_buffers(w[0].a.fd);
		small_buffers(w[1].a.fd);
	}
	for (int i = 0; i < steps && !found; i++) {
		struct walker *a = &w[below(2)], *b = a == w ? w + 1 : w;

		switch (below(24)) {
		default:
			sends(a, b);
			break;
		case 0 ... 9:
			receives(a, b);
			break;
		case 10:
			STEP(a, "fall back", ds_fall_back(a->a.s, a->a.fd));
			break;
		case 11:
			if (!a->shut && !below(8)) {
				STEP(a, "shutdown", ds_shutdown(a->a.s, a->a.fd, SHUT_WR));
				a->shut = true;
			}
			break;
		case 12:
			if (!below(4)) { // the broker's, one end after the other
				a->a.s->seg.own->cut = 1;
				was_cut++;
			}
			break;
		case 13: // the operator's, of one end or of both
			a->off = !a->off;
			break;
		}
	}
	side = (int)below(2);
	ends(&w[side], &w[!side]);
	// Small buffers have the kernel wait for its timers. With a fault, what does not come soon
	// is taken for lost.
	int64_t limit = planted == NOTHING ? 60000000000 : 1000000000;
	int64_t until = ds_now() + limit;
	for (int vain = 0; !w[!side].ended && !found;) {
		if (receives(&w[!side], &w[side])) {
			vain = 0;
			until = ds_now() + limit;
		} else if (++vain > 1000) {
			usleep(100);
			if (ds_now() > until)
				wrong("no end after %lu of %lu, in %s", w[!side].got, w[side].sent, rx.names[ds_mode(&w[!side].a.s->sh->rx_mode)]);
		}
	}
	drop(&w[side]);
	drop(&w[!side]);
}

// The receiver's processes that have the segment are gone, and a program without it reads on. It
// gets all, or a reset.
static void without_segment(void)
{
	struct walker w[2] = {0};
	struct linger l = {0}, set = {0, 7};
	socklen_t len = sizeof l;
	static uint8_t b[65536];
	bool all = below(2);
	int raw, small = 4096;
	uint64_t got = 0;
	ssize_t r = 0;

	number++;
	pair_up(&w[0].a, &w[1].a);
	setsockopt(w[0].a.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	setsockopt(w[0].a.fd, SOL_SOCKET, SO_LINGER, &set, sizeof set);
	for (int i = 0; i < 60; i++)
		sends(&w[0], &w[1]);
	STEP(&w[1], "fall back", ds_fall_back(w[1].a.s, w[1].a.fd));
	raw = dup(w[1].a.fd);
	CHECK(write(w[1].a.s->seg.bell, "", 1) == 1, "%s", strerror(errno)); // and nobody reads it
	STEP(&w[0], "ready", ds_ready(w[0].a.s, w[0].a.fd, POLLOUT)); // finds FALLEN_BACK
	die(&w[1].a);
	STEP(&w[0], "ready", ds_ready(w[0].a.s, w[0].a.fd, POLLOUT)); // finds that nobody is there
	while (all && !found && got < w[0].sent) {
		sends(&w[0], &(struct walker){0});
		while ((r = recv(raw, b, sizeof b, MSG_DONTWAIT)) > 0)
			got += (uint64_t)r;
		STEP(&w[0], "ready", ds_ready(w[0].a.s, w[0].a.fd, POLLOUT));
		if (w[0].sent > 40u << 20)
			w[0].shut = true; // enough
	}
	if (all) {
		getsockopt(w[0].a.fd, SOL_SOCKET, SO_LINGER, &l, &len);
		CHECK(!l.l_onoff, "SO_LINGER is not restored");
	}
	if (planted == END_WELL) {
		l = (struct linger){0, 0};
		setsockopt(w[0].a.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	}
	if (below(2)) {
		hang_up(&w[0].a);
		w[0].a.fd = -1;
	} else {
		die(&w[0].a);
	}
	while ((r = recv(raw, b, sizeof b, 0)) > 0)
		got += (uint64_t)r;
	if (r == 0 && got != w[0].sent)
		wrong("a program without the segment reads an end of file after %lu of %lu", got, w[0].sent);
	if (r < 0 && all)
		wrong("a program without the segment reads %s after %lu of %lu", strerror(errno), got, w[0].sent);
	close(raw);
	drop(&w[0]);
	drop(&w[1]);
}

// As without_segment, but the shadow has room for all that is left when the sender closes: the
// reader gets all of it, and then the end.
static void close_with_room(void)
{
	static uint8_t b[65536];
	struct walker w[2] = {0};
	int raw, small = 4096, large = 1 << 20;
	uint64_t got = 0;
	ssize_t r;

	number++;
	pair_up(&w[0].a, &w[1].a);
	setsockopt(w[0].a.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	for (int i = 0; w[0].sent < 100000 && i < 1000; i++)
		sends(&w[0], &w[1]);
	STEP(&w[1], "fall back", ds_fall_back(w[1].a.s, w[1].a.fd));
	raw = dup(w[1].a.fd);
	CHECK(write(w[1].a.s->seg.bell, "", 1) == 1, "%s", strerror(errno)); // and nobody reads it
	STEP(&w[0], "ready", ds_ready(w[0].a.s, w[0].a.fd, POLLOUT)); // finds FALLEN_BACK
	die(&w[1].a);
	STEP(&w[0], "ready", ds_ready(w[0].a.s, w[0].a.fd, POLLOUT)); // finds that nobody is there
	CHECK(w[0].a.s->sh->return_orphan, "it is not the case of this test");
	setsockopt(w[0].a.fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
	hang_up(&w[0].a);
	w[0].a.fd = -1;
	while ((r = recv(raw, b, sizeof b, 0)) > 0)
		got += (uint64_t)r;
	CHECK(r == 0 && got == w[0].sent, "%llu of %llu bytes, then %s", (unsigned long long)got, (unsigned long long)w[0].sent, r ? strerror(errno) : "the end");
	close(raw);
	drop(&w[1]);
}

// Connections have TCP segments of an Ethernet's size: with those of loopback, of 64 KiB, a small
// buffer has the kernel wait for its timers.
static void as_on_ethernet(void)
{
	int mss = 1448, small = 16384;

	CHECK(setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss) == 0, "TCP_MAXSEG: %s", strerror(errno));
	CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0, "SO_RCVBUF: %s", strerror(errno));
}

// Have the walks been in every state of leaving?
static bool everywhere(void) { return visits[RX_FALLEN_BACK] && visits[RX_RETURNING] && visits[RX_REST] && visits[RX_BACK] && was_cut && was_paused && was_direct_again; }

int main(int argc, char **argv)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);
	const char *spec = argc > 1 ? argv[1] : "../SPEC.md", *many = getenv("EXN_LEAVE_WALKS");
	int walks = many ? atoi(many) : 100;

	as_on_ethernet();

	read_table(&rx, ds_rx_steps, spec, "9.4");
	read_table(&tx, ds_tx_steps, spec, "9.5");
	for (int i = 0; (i < walks || (i < 20000 && !everywhere())) && !failures; i++)
		walk();
	for (int i = 0; i < walks / 10 && !failures; i++)
		without_segment();
	for (int i = 0; i < 5; i++)
		close_with_room();
	CHECK(everywhere(), "the walks do not reach every state");
	for (planted = 1; planted < PLANTS && !failures; planted++) {
		found = 0;
		for (int i = 0; i < 20000 && !found; i++)
			if (planted == END_WELL)
				without_segment();
			else
				walk();
		CHECK(found, "no walk finds the fault: %s", plants[planted]);
	}
	ends_stop(broker, path);
	printf("leave: %d failed\n", failures);
	return failures != 0;
}

// The states of a flow's two ends: the tables are those of SPEC 10.7 to 10.9, and random walks of
// a receiver with several flows make no other step, keep its list, and lose nothing.
#include "flow.h"

#include "conn/dgram.h"
#include "conn/fds.h"
#include "conn/inner.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- the tables

static const char *const outs[] = {"kernel", "offered", "up", "stalled", "ended", NULL};
static const char *const ins[] = {"armed", "rung", "memory", "draining", "ended", NULL};
static const char *const setups[] = {"quiet", "announced", "claiming", "excluded", NULL};
static const char *const events[] = {"offer", "attached", "refused", "full", "room", "gone", "leave", "ring", "wake", "arm", "empty", "drop", "moved", "close",
				     "listen", "exclude", "claim", "grant", "none", "forget", NULL};

static int index_of(const char *const *names, const char *name)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

static void table(const char *path, const char *head, const struct ds_step *steps, const char *const *names)
{
	char line[512], from[32], event[32], to[32], who[32] = "";
	FILE *f = fopen(path, "r");
	bool in = false;
	int rows = 0, count = 0;

	CHECK(f, "%s", path);
	while (f && fgets(line, sizeof line, f)) {
		if (line[0] == '1' && line[1] == '0' && line[2] == '.')
			in = !strncmp(line, head, strlen(head));
		if (!in || sscanf(line, "| %31[a-z-] | %31[a-z-] | %31[a-z-] | %31[A-Za-z]", from, event, to, who) != 4 || !strcmp(who, "Go") || !strcmp(from, "state") || *from == '-')
			continue;
		rows++;
		bool has = false;
		for (const struct ds_step *s = steps; s->from != DG_NO_STEP; s++)
			has |= s->from == index_of(names, from) && s->what == index_of(events, event) && s->to == index_of(names, to);
		CHECK(has, "%s: the library has not: %s, %s, %s", head, from, event, to);
	}
	if (f)
		fclose(f);
	for (const struct ds_step *s = steps; s->from != DG_NO_STEP; s++)
		count++;
	CHECK(rows > 5 && rows == count, "%s has %d steps, the library %d", head, rows, count);
}

// ---- walks

enum { FLOWS = 3, WALKS = 400, STEPS = 300 };

static struct ds_dgram d;
static struct sender {
	struct flow f;
	struct ds_dg_in *in;
	int theirs;
	unsigned sent, got;
	uint64_t consumed; // where the receiver is
	uint64_t kernel; // that it has sent by the kernel, and the receiver has not taken
	bool alive;
} senders[FLOWS];
static bool reached[DG_IN_ENDED + 1];

static void begin(struct sender *s, uint16_t port)
{
	static const struct ds_info here = {.addr = {{[10] = 0xff, [11] = 0xff, 127, [15] = 1}, {[10] = 0xff, [11] = 0xff, 127, [15] = 1}}};
	int fds[2];

	*s = (struct sender){.alive = true};
	fresh(&s->f, RING);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
	s->theirs = fds[1];
	s->in = mmap(NULL, sizeof *s->in, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->in->seg = s->f.rx;
	s->in->seg.info = here;
	s->in->seg.info.port[0] = port;
	s->in->seg.mem = NULL; // the test's
	s->in->alive = ds_fd_keep(fds[0], &s->in->alive);
	s->in->counters = ds_stats_counters(NULL);
	ds_dg_arm(&s->in->seg, DS_DG_ALL);
	s->in->seg.in->flags = DS_DG_TAKES_AFTER;
	CHECK(ds_dg_add(&d, s->in), "it is not added");
}

// Which of the flows of d belong to senders: others were freed.
static bool lives(const struct sender *s)
{
	for (unsigned i = 0; i < d.nin; i++)
		if (d.flows[i] == s->in)
			return true;
	return false;
}

// What holds after each step.
static void hold(void)
{
	unsigned awake = 0, listed = 0;

	for (unsigned i = 0; i < d.nin; i++) {
		const struct ds_dg_in *f = d.flows[i];
		bool in = false, looked = f->state == DG_IN_RUNG || f->state == DG_IN_MEMORY || f->state == DG_IN_DRAINING;
		for (unsigned k = 0; k < d.nlisted; k++)
			in |= d.list[k] == f;
		CHECK(in == looked, "state %d, listed %d", f->state, in);
		CHECK((f->state == DG_IN_MEMORY) == (f->seg.in->armed == DS_DG_AWAKE), "state %d, armed %u", f->state, f->seg.in->armed);
		CHECK(!ds_dg_there(&f->seg) || looked || (f->state == DG_IN_ARMED && ds_dg_rung(&f->seg)), "state %d, and nobody looks", f->state);
		awake += f->state == DG_IN_MEMORY;
		listed += looked;
		reached[f->state] = true;
	}
	CHECK(awake == d.awake && listed == d.nlisted, "%u awake, %u listed: %u, %u", d.awake, d.nlisted, awake, listed);
	CHECK(ds_dg_missteps == 0, "a step that the table has not");
}

// The receiver takes what is next.
static void take_one(void)
{
	struct ds_dg_meta m;
	const volatile uint8_t *bytes;
	struct ds_dg_in *f = ds_dg_pick(&d);
	unsigned n;

	if (!f)
		return;
	CHECK(ds_dg_next(&f->seg, &m, &bytes) && m.len == sizeof n, "nothing is next");
	ds_dg_copy(&n, bytes, sizeof n);
	for (int i = 0; i < FLOWS; i++)
		if (senders[i].in == f)
			CHECK(n == senders[i].got++, "%u in place of %u", n, senders[i].got - 1);
	ds_dg_take(&f->seg, &m);
	for (int i = 0; i < FLOWS; i++)
		if (senders[i].in == f)
			senders[i].consumed = f->seg.at;
}

// Flows that have ended are freed, and begin anew.
static void sweep(void)
{
	bool gone[FLOWS];

	ds_dg_in_sweep(&d);
	for (int i = 0; i < FLOWS; i++) {
		struct sender *s = &senders[i];
		gone[i] = !lives(s);
		if (!gone[i])
			continue;
		// It has taken what it has said that it would.
		CHECK(s->f.tx.to->flags & DS_DG_FINAL && s->f.tx.to->consumed == s->consumed, "it has taken %lu of %lu", (unsigned long)s->consumed,
		      (unsigned long)s->f.tx.to->consumed);
		if (s->alive)
			close(s->theirs);
		free(s->f.mem);
	}
	for (int i = 0; i < FLOWS; i++)
		if (gone[i])
			begin(&senders[i], (uint16_t)(i + 1));
}

static void step(struct sender *s)
{
	struct iovec v;
	bool live = lives(s);

	switch (below(12)) {
	case 0 ... 3: // a datagram
		if (!s->alive)
			break;
		struct ds_cursor c = cursor_of(&v, &s->sent, sizeof s->sent);
		if (ds_dg_send(&s->f.tx, &(struct ds_dg_meta){.len = sizeof s->sent, .stamp = ds_ticks(), .after = true, .kernel = s->kernel, .there = true}, &c) == DS_DG_SENT)
			s->sent++;
		else
			s->kernel++;
		break;
	case 4: // the receiver has one by the kernel, which may be the bell
		if (live && s->in->seg.taken < s->kernel)
			ds_dg_took(&d, s->in, 1);
		break;
	case 5 ... 6:
		take_one();
		break;
	case 7: // it is about to sleep, and has slept
		d.sleepers = 1;
		ds_dg_arm_waiting(&d);
		d.sleepers = 0;
		break;
	case 8:
		if (below(40) == 0)
			ds_dg_end_bells(&d);
		else if (below(4) == 0)
			ds_dg_arm_all(&d);
		break;
	case 9: // a thread sleeps while another has a datagram
		if (live && below(8) == 0) {
			d.sleepers = 1;
			ds_dg_took(&d, s->in, 1);
			d.sleepers = 0;
		}
		break;
	case 10:
		if (live && below(20) == 0)
			(below(2) ? ds_dg_in_moved(&d, s->in) : ds_dg_in_close(&d, s->in, DS_WHY_PEER));
		else if (s->alive && below(20) == 0) { // it is killed
			close(s->theirs);
			s->alive = false;
		}
		break;
	case 11:
		sweep();
	}
}

static void walk(void)
{
	d = (struct ds_dgram){.family = AF_INET, .credit = ds_dg_ticks(50000), .credited = ds_ticks()};
	for (int i = 0; i < FLOWS; i++)
		begin(&senders[i], (uint16_t)(i + 1));
	for (int i = 0; i < STEPS && !failures; i++) {
		step(&senders[below(FLOWS)]);
		hold();
	}
	// The socket is closed.
	ds_dg_in_close_all(&d, DS_WHY_NOTHING);
	hold();
	for (unsigned before = d.nin + 1; d.nlisted && before-- > 0;)
		take_one();
	ds_dg_in_drop_all(&d);
	ds_dg_in_sweep(&d);
	CHECK(d.nin == 0, "%u flows are left", d.nin);
	for (int i = 0; i < FLOWS; i++) {
		if (senders[i].alive)
			close(senders[i].theirs);
		free(senders[i].f.mem);
	}
}

// A receiver that is armed for a bell takes what is in the ring while its sender publishes, as that
// has not seen that all is consumed. It does not sleep before it has looked at what comes.
static void publishes(void)
{
	struct sender *s = &senders[0];
	struct iovec v;

	d = (struct ds_dgram){.family = AF_INET, .credit = ds_dg_ticks(50000), .credited = ds_ticks()};
	begin(s, 1);
	ds_dg_took(&d, s->in, 1);
	struct ds_cursor c = cursor_of(&v, &s->sent, sizeof s->sent);
	CHECK(ds_dg_send(&s->f.tx, &(struct ds_dg_meta){.len = sizeof s->sent, .stamp = ds_ticks()}, &c) == DS_DG_SENT, "not in memory");
	d.sleepers = 1;
	ds_dg_arm_waiting(&d);
	CHECK(s->in->state == DG_IN_RUNG && ds_dg_rung(&s->in->seg), "state %d", s->in->state);
	take_one();
	s->f.tx.out->busy = 1;
	take_one(); // nothing
	ds_dg_arm_waiting(&d);
	CHECK(s->in->state == DG_IN_ENDED, "it sleeps in state %d, and its sender publishes", s->in->state); // for too long
	ds_dg_in_sweep(&d);
	close(s->theirs);
	free(s->f.mem);
}

// A flow that is over is not freed while a process is being made, which copies all in the middle of
// that.
static void forks(void)
{
	struct sender *s = &senders[0];

	d = (struct ds_dgram){.family = AF_INET, .credit = ds_dg_ticks(50000), .credited = ds_ticks()};
	begin(s, 1);
	ds_dg_in_close_all(&d, DS_WHY_SHARED);
	CHECK(ds_setup_lock(), "no lock");
	ds_dg_in_check(&d);
	CHECK(d.nin == 1, "%u flows during a fork", d.nin);
	ds_setup_unlock();
	d.looked = 0;
	ds_dg_in_check(&d);
	CHECK(d.nin == 0, "%u flows after it", d.nin);
	close(s->theirs);
	free(s->f.mem);
}

int main(int argc, char **argv)
{
	const char *spec = argc > 1 ? argv[1] : "../SPEC.md";

	table(spec, "10.7", ds_dg_out_steps, outs);
	table(spec, "10.8", ds_dg_in_steps, ins);
	table(spec, "10.9", ds_dg_setup_steps, setups);
	publishes();
	forks();
	for (int i = 0; i < WALKS && !failures; i++)
		walk();
	for (int i = 0; i <= DG_IN_ENDED; i++)
		CHECK(reached[i], "no walk comes to state %d", i);
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

// cut.c: messages, writes and reads of 1 byte to 4 MiB, in an order of chance, between two hosts
// whose link is cut meanwhile, whenever this says so: cut OPERATIONS [SECONDS]. Each is carried out
// once, and in order. It says finally how many there were.
#include "pair.h"

enum { MOST = 4 << 20, WAVE = 12 };

static uint64_t state = 88172645463325252ull;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

// words fills whole words, and same compares them: what is behind them is never touched.
static void words(uint8_t *to, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t w = (seed + i) * 0x9E3779B97F4A7C15ull;
		memcpy(to + i, &w, n - i < 8 ? n - i : 8);
	}
}

static void same(const uint8_t *got, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i += 8) {
		uint64_t w = (seed + i) * 0x9E3779B97F4A7C15ull;
		must(memcmp(got + i, &w, n - i < 8 ? n - i : 8) == 0);
	}
}

static size_t some_size(void)
{
	static const size_t most[] = {8, 112, 1024, 4096, 16448, 100000, 300000, 1 << 20, MOST};
	return 1 + any() % most[any() % (sizeof(most) / sizeof(*most))];
}

enum what { MESSAGE, WRITE, READ };

// operation is what side from has begun.
struct operation {
	enum what what;
	size_t size;
	uint64_t seed;
	uint8_t *from, *into;
	struct side *side, *other;
	bool begun, done, came; // came: of a message, at the other side
};

static struct side sides[2];
static struct operation all[WAVE];
static uint8_t *memory[2]; // of each side, which the other one reads and writes
static struct fid_mr *mr[2];

static void open_all(void)
{
	side_open(&sides[0]);
	must(other_node());
	side_open(&sides[1]);
	pair_connect(&sides[0], &sides[1]);
	for (int i = 0; i < 2; i++) {
		must((memory[i] = calloc(WAVE, MOST)) != NULL);
		must(fi_mr_reg(sides[i].domain, memory[i], (size_t)WAVE * MOST, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr[i], NULL) == 0);
	}
	for (int i = 0; i < WAVE; i++)
		must((all[i].from = malloc(MOST)) != NULL && (all[i].into = malloc(MOST)) != NULL);
}

static void close_all(void)
{
	for (int i = 0; i < 2; i++) {
		must(fi_close(&mr[i]->fid) == 0);
		free(memory[i]);
	}
	for (int i = 0; i < WAVE; i++) {
		free(all[i].from);
		free(all[i].into);
	}
	side_close(&sides[0]);
	side_close(&sides[1]);
}

/* Chooses what operation i of a wave is. */
static void choose(int i)
{
	struct operation *o = &all[i];
	int who = (int)(any() % 2);

	o->what = (enum what)(any() % 3);
	o->size = some_size();
	o->seed = any();
	o->side = &sides[who];
	o->other = &sides[1 - who];
	o->begun = o->done = o->came = false;
	words(o->what == READ ? memory[1 - who] + (size_t)i * MOST : o->from, o->size, o->seed);
	if (o->what == MESSAGE) // receives are matched in the order of the messages of one side
		must(fi_recv(o->other->ep, o->into, MOST, NULL, 0, o) == 0);
}

/* Begins those that are not begun yet. One that cannot be holds up those of its side behind it. */
static void begin(void)
{
	bool waits[2] = {false, false};

	for (int i = 0; i < WAVE; i++) {
		struct operation *o = &all[i];
		int who = o->side == &sides[1];
		uint64_t at = (uint64_t)i * MOST;
		if (o->begun || waits[who])
			continue;
		ssize_t r = o->what == MESSAGE ? fi_send(o->side->ep, o->from, o->size, NULL, 0, o)
			    : o->what == WRITE ? fi_write(o->side->ep, o->from, o->size, NULL, 0, at, 1, o)
					       : fi_read(o->side->ep, o->from, o->size, NULL, 0, at, 1, o);
		must(r == 0 || r == -FI_EAGAIN);
		o->begun = r == 0;
		waits[who] = r != 0;
	}
}

/* Takes a completion of a side, and checks the data. Returns how many operations are over by it. */
static int take(struct side *side)
{
	struct fi_cq_data_entry e;
	ssize_t r = fi_cq_read(side->cq, &e, 1);

	must(r == 1 || r == -FI_EAGAIN);
	if (r != 1)
		return 0;
	struct operation *o = e.op_context;
	bool came = e.flags & FI_RECV;
	must(o->begun && (came ? !o->came && e.len == o->size : !o->done));
	if (came) {
		o->came = true;
		same(o->into, o->size, o->seed);
	} else {
		o->done = true;
		if (o->what == WRITE)
			same(memory[1 - (o->side == &sides[1])] + (o - all) * MOST, o->size, o->seed);
		if (o->what == READ)
			same(o->from, o->size, o->seed);
	}
	return o->done && (o->what != MESSAGE || o->came);
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 1000, n;
	time_t end = argc > 2 ? time(NULL) + atol(argv[2]) : 0;

	open_all();
	for (n = 0; n < count || time(NULL) < end; n += WAVE) {
		puts("cut"); // the test does, while what follows is under way
		fflush(stdout);
		for (int i = 0; i < WAVE; i++)
			choose(i);
		for (int left = WAVE; left > 0;) {
			begin();
			left -= take(&sides[0]);
			left -= take(&sides[1]);
		}
	}
	close_all();
	fprintf(stderr, "%ld operations\n", n);
	puts("done");
	return 0;
}

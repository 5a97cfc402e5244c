// Flows: records in a ring, the receiver that sleeps, what the other side may have written. Runs
// ../datagram/testdata/flow.golden, too.
#include "flow.h"

#include <arpa/inet.h>

// Datagrams of all sizes arrive whole and in order, however full the ring is.
static void all_sizes(void)
{
	static uint8_t a[65507], b[65536];
	static uint32_t sizes[1 << 12];
	struct flow f;
	unsigned sent = 0, got = 0;
	uint64_t seen = 0;

	fresh(&f, RING);
	for (int i = 0; i < 20000; i++) {
		if (below(2)) {
			uint32_t n = (uint32_t)below(below(8) ? 200 : sizeof a + 1);
			memset(a, (int)sent, n);
			int rc = give(&f, a, n);
			CHECK(rc == DS_DG_SENT || (rc == DS_DG_FULL && sent != got), "send %d", rc);
			if (rc != DS_DG_SENT)
				continue;
			sizes[sent++ % 4096] = n;
			uint64_t now = ds_dg_arrived(&f.rx);
			CHECK(now > seen, "an arrival is not seen");
			seen = now;
		} else {
			int n = take(&f, b);
			CHECK((n < 0) == (sent == got), "%d of %u, %u", n, got, sent);
			if (n < 0)
				continue;
			CHECK((uint32_t)n == sizes[got % 4096], "%d is no %u", n, sizes[got % 4096]);
			CHECK(n == 0 || (b[0] == (uint8_t)got && b[n - 1] == (uint8_t)got), "bytes of %u", got);
			got++;
			CHECK(ds_dg_arrived(&f.rx) == seen, "taking is no arrival");
		}
	}
	CHECK(!f.tx.broken && !f.rx.broken, "broken");
	free(f.mem);
}

// A quiet flow stays in few pages.
static void quiet(void)
{
	uint8_t b[64];
	struct flow f;

	fresh(&f, 1 << 19);
	for (int i = 0; i < 10000; i++) {
		CHECK(give(&f, "quiet", 5) == DS_DG_SENT && take(&f, b) == 5, "%d", i);
		if (failures)
			break;
	}
	for (size_t i = 2 * DS_DG_NEAR; i < 1 << 19; i++)
		if (f.mem[DS_DG_RING + i]) {
			CHECK(false, "byte %zu was written", i);
			break;
		}
	free(f.mem);
}

// A receiver that comes between WRAP and the record after it finds nothing: no train, no breach.
static void between(void)
{
	uint8_t b[64];
	struct flow f;
	struct ds_dg_meta m;
	const volatile uint8_t *bytes;

	fresh(&f, RING);
	CHECK(give(&f, "before", 6) == DS_DG_SENT && take(&f, b) == 6, "before");
	uint32_t *first = (uint32_t *)(void *)f.tx.ring, *second = first + DS_DG_UNIT / sizeof *first;
	*first = 0;
	*second = (uint32_t)DS_DG_WRAP << 24;
	memset(&m, 0xff, sizeof m);
	CHECK(!ds_dg_next(&f.rx, &m, &bytes) && !m.train && !m.len && !f.rx.broken, "%u bytes in datagrams of %u", m.len, m.train);
	*first = (uint32_t)DS_DG_DATAGRAM << 24 | 5;
	CHECK(take(&f, b) == 5 && f.rx.at == RING + DS_DG_UNIT, "after");
	free(f.mem);
}

// A sender writes a train to a receiver that has never said that it takes any, and the word that
// says so.
static void train(void)
{
	uint8_t b[64] = {0};
	struct flow f;
	struct iovec v;
	struct ds_dg_meta m = {.len = 60, .train = 1};
	const volatile uint8_t *bytes;

	fresh(&f, RING);
	struct ds_cursor c = cursor_of(&v, b, m.len);
	f.rx.in->flags |= DS_DG_TRAINS; // as the sender can
	CHECK(ds_dg_send(&f.tx, &m, &c) == DS_DG_SENT, "send");
	CHECK(!ds_dg_next(&f.rx, &m, &bytes) && f.rx.broken, "it takes a train of %u", m.len);
	free(f.mem);
}

// Without a bound a receiver gives back what it has consumed when that is much, when nothing is
// left, and before it sleeps; with one, each datagram.
static void lags(void)
{
	uint8_t b[1024] = {0};
	struct flow f;
	uint64_t before;
	unsigned n = 0;

	fresh(&f, 1 << 19);
	ds_dg_bound(&f.rx, 0);
	for (int i = 0; i < 64; i++)
		CHECK(give(&f, b, sizeof b) == DS_DG_SENT, "%d", i);
	for (before = ds_dg_queued(&f.tx); ds_dg_queued(&f.tx) == before && take(&f, b) >= 0; n++)
		;
	CHECK(n > 1 && before - ds_dg_queued(&f.tx) >= DS_DG_LAG && n * sizeof b <= DS_DG_LAG + sizeof b, "gave %lu after %u",
	      (unsigned long)(before - ds_dg_queued(&f.tx)), n);
	CHECK(take(&f, b) >= 0, "one more");
	before = ds_dg_queued(&f.tx);
	ds_dg_arm(&f.rx, true);
	CHECK(ds_dg_queued(&f.tx) < before, "armed, and has not given");
	ds_dg_arm(&f.rx, false);
	while (take(&f, b) >= 0)
		;
	CHECK(ds_dg_queued(&f.tx) == 0, "empty, and has not given");
	ds_dg_bound(&f.rx, 1 << 17);
	CHECK(give(&f, b, 1) == DS_DG_SENT && give(&f, b, 1) == DS_DG_SENT, "sent");
	before = ds_dg_queued(&f.tx);
	CHECK(take(&f, b) == 1 && ds_dg_queued(&f.tx) < before, "bounded, and has not given");
	free(f.mem);
}

// What the receiver says decides: it sleeps, it has closed, it takes no more than a bound.
static void told(void)
{
	uint8_t b[1024] = {0};
	struct flow f;
	int n = 0;
	uint64_t taken;

	fresh(&f, RING);
	ds_dg_arm(&f.rx, true);
	CHECK(give(&f, b, 1) == DS_DG_ARMED && !ds_dg_there(&f.rx) && !ds_dg_busy(&f.rx), "armed");
	ds_dg_arm(&f.rx, false);
	f.rx.in->bound = 5 * (1024 + DS_DG_OVERHEAD);
	while (give(&f, b, sizeof b) == DS_DG_SENT)
		n++;
	CHECK(n == 5, "%d of 5", n);
	CHECK(take(&f, b) == 1024 && give(&f, b, 100) == DS_DG_SENT && give(&f, b, sizeof b) == DS_DG_FULL, "bound");
	while (take(&f, b) >= 0)
		n--;
	CHECK(n == 0 && ds_dg_queued(&f.tx) == 0, "%d left", n);
	ds_dg_drop(&f.tx);
	CHECK(f.tx.out->dropped == 1, "dropped");
	f.tx.out->by_kernel = 7;
	CHECK(ds_dg_by_kernel(&f.rx) == 7 && !ds_dg_settled(&f.tx, 7, 0), "by the kernel");
	f.rx.in->taken = 4;
	CHECK(!ds_dg_settled(&f.tx, 7, 2) && ds_dg_settled(&f.tx, 7, 3) && !ds_dg_dry(&f.tx, 7, &taken), "settled");
	f.rx.in->dry = 7;
	CHECK(ds_dg_dry(&f.tx, 7, &taken) && taken == 4, "dry");
	f.rx.in->flags = DS_DG_CLOSED;
	CHECK(give(&f, b, 1) == DS_DG_OVER && ds_dg_closed(&f.tx) && !ds_dg_there(&f.rx), "closed");
	f.tx.out->flags = DS_DG_LEFT;
	CHECK(ds_dg_left(&f.rx), "left");
	free(f.mem);
}

// A receiver that says what cannot be.
static void lies(void)
{
	static const uint64_t of[] = {64, 1, UINT64_MAX, 1ull << 40};
	struct flow f;

	for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
		int rc = DS_DG_SENT;
		fresh(&f, RING);
		f.rx.in->consumed = of[i];
		for (int k = 0; k < 3000 && rc == DS_DG_SENT; k++)
			rc = i == 0 && k == 0 ? DS_DG_SENT : give(&f, "x", 1);
		if (i == 0) /* it becomes possible */
			CHECK(rc == DS_DG_FULL, "%d", rc);
		else
			CHECK(rc == DS_DG_OVER && f.tx.broken, "%u: %d", i, rc);
		free(f.mem);
	}
}

// A receiver that has stopped takes what was there, whatever the sender goes on to write.
static void stops(void)
{
	uint8_t b[64];
	struct flow f;
	int n = 0;

	fresh(&f, RING);
	for (int i = 0; i < 3; i++)
		CHECK(give(&f, "there", 5) == DS_DG_SENT, "%d", i);
	ds_dg_close(&f.rx);
	CHECK(ds_dg_queued(&f.tx) == 0, "closed, and has not said what it takes");
	f.rx.in->flags = 0; // as for a sender that does not look
	CHECK(give(&f, "later", 5) == DS_DG_SENT, "later");
	CHECK(ds_dg_there(&f.rx), "what was there is gone");
	for (; take(&f, b) >= 0; n++)
		CHECK(!memcmp(b, "there", 5), "%.5s", b);
	CHECK(n == 3 && !ds_dg_there(&f.rx) && !f.rx.broken, "%d of 3", n);
	free(f.mem);
}

// ---- golden vectors

static size_t hex(uint8_t *to, const char *text)
{
	size_t n = 0;

	for (; *text; text++) {
		if (*text == ' ' || *text == '\n')
			continue;
		char two[3] = {text[0], text[1], 0};
		to[n++] = (uint8_t)strtol(two, NULL, 16);
		text++;
	}
	return n;
}

// The word after name in line, at to.
static void word(const char *line, const char *name, char *to)
{
	const char *p = strstr(line, name);

	*to = 0;
	if (p)
		sscanf(p + strlen(name), "%127[^ ]", to);
}

static void address(char *text, uint8_t addr[16], uint16_t *port)
{
	char *colon = strrchr(text, ':');

	*port = (uint16_t)atoi(colon + 1);
	*colon = 0;
	memset(addr, 0, 16);
	if (text[0] == '[') {
		text[strlen(text) - 1] = 0;
		CHECK(inet_pton(AF_INET6, text + 1, addr) == 1, "%s", text);
	} else {
		addr[10] = addr[11] = 0xff;
		CHECK(inet_pton(AF_INET, text, addr + 12) == 1, "%s", text);
	}
}

static void golden_header(const char *line, const char *answer)
{
	struct ds_info i = {{0}, {{0}}, {0}};
	char w[128];
	uint8_t want[256], got[128] = {0};

	word(line, "from=", w);
	address(w, i.addr[0], &i.port[0]);
	word(line, "to=", w);
	address(w, i.addr[1], &i.port[1]);
	word(line, "nonce=", w);
	hex(i.nonce, w);
	word(line, "ring=", w);
	size_t n = hex(want, answer);
	ds_dg_header(got, &i, strtoull(w, NULL, 10));
	CHECK(n <= sizeof got && !memcmp(got, want, n), "%s", line);
}

static void golden_record(const char *line, const char *answer)
{
	char w[128];
	uint8_t want[64], payload[64];
	struct flow f;
	struct ds_dg_meta m = {0}, back;
	const volatile uint8_t *bytes;
	struct iovec v;

	word(line, "tos=", w);
	m.tos = (uint8_t)atoi(w);
	word(line, "ttl=", w);
	m.ttl = (uint8_t)atoi(w);
	word(line, "each=", w);
	m.train = (uint16_t)atoi(w);
	word(line, "stamp=", w);
	m.stamp = strtoull(w, NULL, 10);
	word(line, "payload=", w);
	m.len = (uint32_t)hex(payload, w);
	fresh(&f, RING);
	f.rx.takes_trains = m.train;
	struct ds_cursor c = cursor_of(&v, payload, m.len);
	CHECK(ds_dg_send(&f.tx, &m, &c) == DS_DG_SENT, "%s", line);
	size_t n = hex(want, answer);
	CHECK(n == DS_DG_HEAD && !memcmp(f.mem + DS_DG_RING, want, n), "%s", line);
	CHECK(ds_dg_next(&f.rx, &back, &bytes) && back.len == m.len && back.tos == m.tos && back.ttl == m.ttl && back.train == m.train && back.stamp == m.stamp, "%s", line);
	free(f.mem);
}

static void golden_bad(const char *line)
{
	unsigned long off;
	char text[64];
	uint8_t head[32];
	struct flow f;
	struct ds_dg_meta m;
	const volatile uint8_t *bytes;

	CHECK(sscanf(line, "bad %lu %63s", &off, text) == 2, "%s", line);
	size_t n = hex(head, text);
	fresh(&f, RING);
	memcpy(f.mem + DS_DG_RING + off, head, n);
	f.rx.at = off;
	CHECK(!ds_dg_next(&f.rx, &m, &bytes) && f.rx.broken && !ds_dg_there(&f.rx), "%s", line);
	free(f.mem);
}

static void golden(void)
{
	FILE *in = fopen("../datagram/testdata/flow.golden", "r");
	char line[1024];
	int headers = 0, records = 0, bad = 0;

	CHECK(in, "no vectors");
	while (in && fgets(line, sizeof line, in)) {
		char *answer = strstr(line, " = ");
		if (!strncmp(line, "header ", 7) && answer)
			golden_header(line, answer + 3), headers++;
		else if (!strncmp(line, "record ", 7) && answer)
			golden_record(line, answer + 3), records++;
		else if (!strncmp(line, "bad ", 4))
			golden_bad(line), bad++;
	}
	if (in)
		fclose(in);
	CHECK(headers > 1 && records > 3 && bad > 5, "%d headers, %d records, %d bad", headers, records, bad);
}

int main(void)
{
	golden();
	all_sizes();
	quiet();
	between();
	train();
	lags();
	told();
	lies();
	stops();
	if (failures)
		return 1;
	printf("ok\n");
	return 0;
}

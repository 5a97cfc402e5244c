// What becomes of bytes where something is odd: a segment that is too large, memory that is not
// there, a full ring.
#include "ends.h"

#include <fcntl.h>
#include <sys/mman.h>

// a server that allows less than the client has made: both stay on TCP, and say why
static void refused(uint64_t ring, unsigned slots)
{
	struct ds_config before = ds_config;
	struct side c, s;

	ds_config.max_ring = ring;
	ds_config.max_slots = slots;
	connect_to(&c);
	accept_from(&s);
	for (int i = 0; i < 20000 && (c.s->entry->reason != DS_WHY_REFUSED || s.s->entry->reason != DS_WHY_REFUSED); i++)
		exchange(&c, &s, i);
	CHECK(c.s->entry->reason == DS_WHY_REFUSED && s.s->entry->reason == DS_WHY_REFUSED, "why: %d, %d", c.s->entry->reason, s.s->entry->reason);
	CHECK(ds_plain(s.s) && !s.s->seg.mem, "the server has kept it");
	for (int i = 0; i < 100; i++)
		exchange(&c, &s, i);
	CHECK(!ds_direct(c.s) && !ds_direct(s.s), "direct all the same");
	hang_up(&c);
	hang_up(&s);
	ds_config = before;
}

// statistics that are new to a connection, as those of a child are after fork
static int reason_anew(struct side *a)
{
	ds_stats_put(a->s->entry, false);
	a->s->entry = NULL;
	ds_broker_is_new();
	return a->s->entry->reason;
}

// Both ends have the segment, and before anything was direct the program of one gives it up. That
// is why the bytes that follow are not direct, whoever sends them.
static void given_up(bool sends)
{
	struct side c, s;
	uint8_t b[8];

	connect_to(&c);
	accept_from(&s);
	// one send, after which it is offered: a second one might be direct
	CHECK(put(&c, "ab", 2, 0) == 2 && get(&s, b, 2, MSG_WAITALL) == 2, "%s", strerror(errno));
	for (int64_t end = ds_now() + 60000000000; ds_now() < end && (ds_state_of(c.s) != CONN_UP || ds_state_of(s.s) != CONN_UP); usleep(100)) {
		ds_tick(c.s, c.fd);
		ds_tick(s.s, s.fd);
	}
	CHECK(c.s->entry->reason == DS_WHY_IDLE && s.s->entry->reason == DS_WHY_IDLE, "ready: %d, %d", c.s->entry->reason, s.s->entry->reason);
	CHECK(reason_anew(&s) == DS_WHY_IDLE && s.s->entry->mode == DS_MODE_TCP, "a child says %d", s.s->entry->reason);
	ds_fall_back(s.s, s.fd);
	CHECK(s.s->entry->reason == DS_WHY_PROGRAM, "given up: %d", s.s->entry->reason);
	CHECK(reason_anew(&s) == DS_WHY_PROGRAM && s.s->entry->mode == DS_MODE_DEMOTED, "its child says %d", s.s->entry->reason);
	if (sends)
		CHECK(put(&c, "abc", 3, 0) == 3 && recv(s.fd, b, 3, 0) == 3, "%s", strerror(errno));
	else
		CHECK(send(s.fd, "abc", 3, 0) == 3 && get(&c, b, 3, 0) == 3, "%s", strerror(errno));
	CHECK(c.s->entry->reason == DS_WHY_PEER, "its peer: %d", c.s->entry->reason);
	CHECK(reason_anew(&c) == DS_WHY_PEER, "its peer's child says %d", c.s->entry->reason);
	hang_up(&c);
	hang_up(&s);
}

static void faults(void)
{
	struct side c, s;
	uint8_t *p = mmap(NULL, 3 * 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), b[100];
	uint8_t *end = p + 2 * 65536;
	int n = 0;

	mprotect(end, 65536, PROT_NONE);
	pair_up(&c, &s);
	CHECK(put(&c, end, 10, 0) == -1 && errno == EFAULT, "send: %s", strerror(errno));
	CHECK(put(&c, end - 5, 10, 0) == -1 && errno == EFAULT, "partly there: %s", strerror(errno));
	CHECK(put(&c, end - 400, 480, 0) == -1 && errno == EFAULT, "partly there, in several messages: %s", strerror(errno));
	CHECK(get(&s, b, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "something was sent");
	// of much, whole pieces are sent
	ssize_t sent = put(&c, p, 3 * 65536, 0);
	CHECK(sent > 0 && sent <= 2 * 65536, "%zd", sent);
	CHECK(get(&s, p, (size_t)sent, MSG_WAITALL) == sent, "%s", strerror(errno));
	CHECK(put(&c, "0123456789", 10, 0) == 10, "%s", strerror(errno));
	CHECK(get(&s, end, 10, 0) == -1 && errno == EFAULT, "recv: %s", strerror(errno));
	CHECK(get(&s, end - 5, 10, 0) == -1 && errno == EFAULT, "partly there: %s", strerror(errno));
	CHECK(get(&s, end, 10, MSG_PEEK) == -1 && errno == EFAULT, "peek: %s", strerror(errno));
	CHECK(ds_fionread(s.s, s.fd, &n) == 0 && n == 10, "%d bytes are left", n);
	CHECK(get(&s, end - 5, 5, 0) == 5 && !memcmp(end - 5, "01234", 5), "what there is room for");
	CHECK(get(&s, NULL, 2, MSG_TRUNC) == 2 && get(&s, b, 10, 0) == 3 && !memcmp(b, "789", 3), "the rest");
	CHECK(get(&s, end, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN, "nothing to be put there: %s", strerror(errno));
	hang_up(&c);
	hang_up(&s);
	munmap(p, 3 * 65536);
}

// A ring without room: before the sender sleeps it goes on in VELO messages, of which a reader that
// is slow sees all.
static void full_ring(void)
{
	struct side c, s;
	static uint8_t big[65536], back[65536];
	size_t sent = 0, got = 0;
	ssize_t r;

	pair_up(&c, &s);
	fcntl(c.fd, F_SETFL, O_NONBLOCK);
	ds_life_flags(&c.life, false);
	uint64_t velo = c.s->seg.counters[DS_C_TX_VELO];
	for (;;) {
		for (size_t i = 0; i < sizeof big; i++)
			big[i] = (uint8_t)((sent + i) % 251);
		if ((r = put(&c, big, sizeof big, 0)) <= 0)
			break;
		sent += (size_t)r;
	}
	CHECK(errno == EAGAIN && sent > c.s->seg.ring - 65536, "%zu bytes: %s", sent, strerror(errno));
	CHECK(c.s->seg.counters[DS_C_TX_VELO] > velo + 10, "no VELO messages");
	CHECK(c.s->sh->tx.count - c.s->sh->tx.consumed < c.s->seg.slots - c.s->seg.reserve + 1, "the reserve was used");
	while (got < sent && (r = get(&s, back, sizeof back, 0)) > 0)
		for (ssize_t i = 0; i < r; i++, got++)
			if (back[i] != (uint8_t)(got % 251)) {
				CHECK(false, "byte %zu of %zu", got, sent);
				got = sent;
				break;
			}
	CHECK(got == sent, "%zu of %zu", got, sent);
	CHECK(put(&c, big, sizeof big, 0) == sizeof big && get(&s, back, sizeof back, MSG_WAITALL) == sizeof back, "the ring again");
	hang_up(&c);
	hang_up(&s);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	refused(65536, DS_MAX_SLOTS);
	refused(DS_MAX_RING, 64);
	given_up(false);
	given_up(true);
	faults();
	full_ring();
	ends_stop(broker, path);
	printf("data: %d failed\n", failures);
	return failures != 0;
}

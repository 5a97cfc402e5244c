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
	ds_flags_changed(c.s);
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
	faults();
	full_ring();
	ends_stop(broker, path);
	printf("data: %d failed\n", failures);
	return failures != 0;
}

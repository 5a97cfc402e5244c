#include "harness.h"

#include "conn/sock.h"

#include <fcntl.h>

int failures;
static uint64_t state = 88172645463325252ull;

void seed(uint64_t n) { state = n * 2654435761u + 88172645463325252ull; }

uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

uint64_t below(uint64_t n) { return rnd() % n; }

const struct ds_info some_info = {
	.nonce = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	.addr = {{[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}, {[10] = 0xff, [11] = 0xff, 10, 0, 0, 2}},
	.port = {40000, 80},
};

void make_pair(struct pair *p, uint32_t slots, uint64_t ring)
{
	size_t rings;
	int bells[2];

	memset(p, 0, sizeof *p);
	p->size = ds_seg_size(slots, ring, &rings);
	if (posix_memalign((void **)&p->mem, 4096, p->size) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, bells) < 0)
		abort();
	memset(p->mem, 0, p->size);
	ds_seg_header(p->mem, &some_info, slots, ring);
	for (int i = 0; i < 2; i++) {
		CHECK(ds_seg_view(&p->end[i].seg, p->mem, p->size, i) == 0, "side %d", i);
		p->end[i].seg.bell = bells[i];
		p->end[i].seg.reserve = 2;
	}
}

void free_pair(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		close(p->end[i].seg.bell);
	free(p->mem);
}

struct ds_cursor cursor_of(struct iovec *v, void *p, size_t n)
{
	*v = (struct iovec){p, n};
	return (struct ds_cursor){.v = v, .n = 1, .left = n};
}

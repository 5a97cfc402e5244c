// order.c: sends complete in the order in which they were posted, whichever way each of them goes:
// ofi_rxm frees the first piece of a message when the last one is complete.
#include "pair.h"

enum { MOST = 1 << 20, WAVE = 16, WAVES = 60 };

static uint64_t state = 88172645463325252ull;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint8_t byte(uint64_t message, size_t i) { return (uint8_t)(message * 31 + i * 7 + (i >> 9)); }

static void fill(uint8_t *to, size_t n, uint64_t message)
{
	for (size_t i = 0; i < n; i++)
		to[i] = byte(message, i);
}

static void same(const uint8_t *got, size_t n, uint64_t message)
{
	for (size_t i = 0; i < n; i++)
		must(got[i] == byte(message, i));
}

// A small message behind one that the peer has not got yet is not complete before it.
static void small_behind_large(struct side *a, struct side *b)
{
	static uint8_t large[16448], small[72], got[sizeof(large)];
	struct fi_cq_data_entry e;
	struct ep *sender = of(a->ep, struct ep, fid);
	fill(large, sizeof(large), 1);
	fill(small, sizeof(small), 2);
	must(fi_send(a->ep, large, sizeof(large), NULL, 0, large) == 0);
	must(fi_send(a->ep, small, sizeof(small), NULL, 0, small) == 0);
	for (int i = 0; i < 10; i++) // b does nothing: to another host the large one cannot be complete
		must(!sender->far || fi_cq_read(a->cq, &e, 1) == -FI_EAGAIN);
	must(fi_recv(b->ep, got, sizeof(got), NULL, 0, NULL) == 0);
	must(turn(b, a, &e) == 1 && e.len == sizeof(large));
	same(got, sizeof(large), 1);
	must(fi_recv(b->ep, got, sizeof(got), NULL, 0, NULL) == 0);
	must(turn(b, a, &e) == 1 && e.len == sizeof(small));
	same(got, sizeof(small), 2);
	must(turn(a, b, &e) == 1 && e.op_context == large);
	must(turn(a, b, &e) == 1 && e.op_context == small);
}

static size_t some_size(void)
{
	static const size_t most[] = {8, 72, 112, 1024, 4096, 4097, 16448, 100000, 300000, MOST};
	return 1 + any() % most[any() % (sizeof(most) / sizeof(*most))];
}

// Messages of all sizes, in two pieces each, the first of which is used again when its send is
// complete, as ofi_rxm does with its headers.
static void waves(struct side *a, struct side *b)
{
	static uint8_t header[WAVE][64], *from[WAVE], *into[WAVE];
	struct fi_cq_data_entry e;
	for (int i = 0; i < WAVE; i++)
		must((from[i] = malloc(MOST)) != NULL && (into[i] = malloc(MOST + 64)) != NULL);
	for (uint64_t wave = 0; wave < WAVES; wave++) {
		size_t sizes[WAVE];
		int sent = 0, got = 0;
		for (uint64_t i = 0; i < WAVE; i++) {
			sizes[i] = some_size();
			fill(header[i], 64, wave * WAVE + i);
			fill(from[i], sizes[i], wave * WAVE + i + 1000);
			struct iovec iov[2] = {{header[i], 64}, {from[i], sizes[i]}};
			must(fi_recv(b->ep, into[i], MOST + 64, NULL, 0, into[i]) == 0);
			must(fi_sendmsg(a->ep, &(struct fi_msg){.msg_iov = iov, .iov_count = 2, .context = header[i]},
					FI_COMPLETION | (any() % 4 == 0 ? FI_DELIVERY_COMPLETE : 0)) == 0);
		}
		while (sent < WAVE || got < WAVE) {
			ssize_t n = fi_cq_read(a->cq, &e, 1);
			must(n == -FI_EAGAIN || (n == 1 && e.op_context == header[sent]));
			if (n == 1)
				memset(header[sent++], 0xee, 64);
			n = fi_cq_read(b->cq, &e, 1);
			must(n == -FI_EAGAIN || (n == 1 && e.op_context == into[got] && e.len == 64 + sizes[got]));
			if (n == 1) {
				same(into[got], 64, wave * WAVE + (uint64_t)got);
				same(into[got] + 64, sizes[got], wave * WAVE + (uint64_t)got + 1000);
				got++;
			}
		}
	}
	for (int i = 0; i < WAVE; i++) {
		free(from[i]);
		free(into[i]);
	}
}

// What the peer sends because it has got a message comes after that message is complete.
static void answers(struct side *a, struct side *b)
{
	static uint8_t question[20000], got[20000], back[8];
	struct fi_cq_data_entry e;
	for (uint64_t i = 0; i < 200; i++) {
		size_t n = some_size() % sizeof(question) + 1;
		fill(question, n, i);
		must(fi_recv(a->ep, back, sizeof(back), NULL, 0, back) == 0);
		must(fi_recv(b->ep, got, sizeof(got), NULL, 0, got) == 0);
		must(fi_send(a->ep, question, n, NULL, 0, question) == 0);
		while (fi_cq_read(b->cq, &e, 1) != 1)
			(void)fi_cq_read(a->cq, NULL, 0);
		same(got, n, i);
		must(fi_inject(b->ep, &i, 8, 0) == 0);
		must(turn(a, b, &e) == 1 && e.op_context == question && (e.flags & FI_SEND));
		must(turn(a, b, &e) == 1 && e.op_context == back && memcmp(back, &i, 8) == 0);
	}
}

int main(void)
{
	static struct side a, b;
	side_open(&a);
	other_node();
	side_open(&b);
	pair_connect(&a, &b);
	small_behind_large(&a, &b);
	waves(&a, &b);
	answers(&a, &b);
	side_close(&a);
	side_close(&b);
	puts("done");
	return 0;
}

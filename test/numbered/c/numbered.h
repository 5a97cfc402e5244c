/* numbered.h: words that say where they belong, as package numbered has them in Go (word.go). */
#ifndef EXN_NUMBERED_H
#define EXN_NUMBERED_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One direction of a connection. */
struct numbered {
	uint32_t conn; /* below 2^20 */
	int down;      /* from the server to the client */
};

static inline uint64_t numbered_word(struct numbered s, uint64_t number)
{
	uint64_t w = number | (uint64_t)s.conn << 36 | (uint64_t)s.down << 56;

	return w | ((w + 1) * 0x9e3779b97f4a7c15u >> 57) << 57;
}

/* Writes the stream's n bytes from offset at on. */
static inline void numbered_fill(struct numbered s, uint8_t *b, size_t n, uint64_t at)
{
	while (n > 0) {
		uint64_t w = numbered_word(s, at / 8);
		size_t skip = at % 8, k = n < 8 - skip ? n : 8 - skip;

		memcpy(b, (uint8_t *)&w + skip, k);
		b += k;
		at += k;
		n -= k;
	}
}

/* How many of the first n bytes are the stream's from offset at on. */
static inline size_t numbered_same(struct numbered s, const uint8_t *b, size_t n, uint64_t at)
{
	size_t i = 0;

	while (i < n) {
		uint64_t w = numbered_word(s, (at + i) / 8);
		const uint8_t *want = (uint8_t *)&w + (at + i) % 8, *end = (uint8_t *)(&w + 1);

		if (end - want == 8 && n - i >= 8 && memcmp(b + i, &w, 8) == 0) {
			i += 8;
			continue;
		}
		for (; want < end && i < n; want++, i++)
			if (b[i] != *want)
				return i;
	}
	return i;
}

/* A checker: what came of a stream of len bytes. */
struct checker {
	struct numbered s;
	uint64_t len, right;
	uint8_t wrong[256]; /* what came after the right ones */
	size_t nwrong;
};

/* Takes bytes that have arrived. Returns whether they are wrong, and enough of them are known. */
static inline int checker_check(struct checker *c, const uint8_t *b, size_t n)
{
	size_t same = 0;

	if (c->nwrong == 0) {
		same = numbered_same(c->s, b, n < c->len - c->right ? n : (size_t)(c->len - c->right), c->right);
		c->right += same;
	}
	for (; same < n && c->nwrong < sizeof c->wrong; same++)
		c->wrong[c->nwrong++] = b[same];
	return c->nwrong == sizeof c->wrong || (c->nwrong > 0 && c->right + c->nwrong >= c->len);
}

/* Prints the line that numbered.ParseFault reads: "wrong CONN DOWN OFFSET LEN BYTES", these in
 * hexadecimal; none: the end of file came. */
static inline void checker_tell(const struct checker *c)
{
	char line[64 + 2 * sizeof c->wrong];
	int k = sprintf(line, "wrong %u %d %llu %llu ", c->s.conn, c->s.down, (unsigned long long)c->right, (unsigned long long)c->len);

	for (size_t i = 0; i < c->nwrong; i++)
		k += sprintf(line + k, "%02x", c->wrong[i]);
	puts(line);
	fflush(stdout);
}

#endif

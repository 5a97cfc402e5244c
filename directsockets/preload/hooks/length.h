/* How long instructions of x86-64 are: those that a compiler makes of C. */
#ifndef DS_HOOKS_LENGTH_H
#define DS_HOOKS_LENGTH_H

#include <stdint.h>

/* What follows an opcode: an operand in memory or a register (M), and a number of one byte, of two
 * or four, of four or eight, or the way of a jump. UNKNOWN: no such instruction is expected. */
enum { M = 1, BYTE = 2, WORD = 4, LONG_WORD = 8, NEAR = 16, FAR = 32, UNKNOWN = 64 };

/* Behind 0x0f. */
static inline unsigned long_opcode(unsigned char c)
{
	if (c >= 0x80 && c <= 0x8f)
		return FAR;
	if (c == 0x05 || c == 0x0b || c == 0x31 || c == 0xa2 || (c >= 0xc8 && c <= 0xcf))
		return 0;
	if ((c >= 0x70 && c <= 0x73) || c == 0xa4 || c == 0xac || c == 0xba || c == 0xc2 || c == 0xc4 || c == 0xc5 || c == 0xc6)
		return M | BYTE;
	if (c == 0x0d || (c >= 0x10 && c <= 0x1f) || (c >= 0x28 && c <= 0x2f) || (c >= 0x40 && c <= 0x6f) || (c >= 0x74 && c <= 0x76) ||
	    c == 0x7e || c == 0x7f || (c >= 0x90 && c <= 0x9f) || c == 0xa3 || c == 0xab || (c >= 0xae && c <= 0xc1) || c == 0xc3 || c >= 0xd0)
		return M;
	return UNKNOWN;
}

/* An opcode of one byte. */
static inline unsigned short_opcode(unsigned char c)
{
	static const unsigned char arithmetic[8] = {M, M, M, M, BYTE, WORD, UNKNOWN, UNKNOWN};

	if (c < 0x40)
		return arithmetic[c & 7];
	if (c >= 0x70 && c <= 0x7f)
		return NEAR;
	if ((c >= 0x50 && c <= 0x5f) || (c >= 0x90 && c <= 0x99))
		return 0;
	if (c >= 0xb8 && c <= 0xbf)
		return LONG_WORD;
	if ((c >= 0xb0 && c <= 0xb7) || c == 0x6a || c == 0xa8)
		return BYTE;
	switch (c) {
	case 0xa4: case 0xa5: case 0xaa: case 0xab: case 0xc3: case 0xc9: case 0xcc: case 0xf4: return 0;
	case 0x63: case 0x84: case 0x85: case 0x86: case 0x87: case 0x88: case 0x89: case 0x8a: case 0x8b: case 0x8d: case 0x8f: return M;
	case 0xd0: case 0xd1: case 0xd2: case 0xd3: case 0xf6: case 0xf7: case 0xfe: case 0xff: return M;
	case 0x6b: case 0x80: case 0x83: case 0xc0: case 0xc1: case 0xc6: return M | BYTE;
	case 0x69: case 0x81: case 0xc7: return M | WORD;
	case 0x68: case 0xa9: return WORD;
	case 0xe3: case 0xeb: return NEAR;
	case 0xe8: case 0xe9: return FAR;
	}
	return UNKNOWN;
}

/* The bytes of an operand at p. */
static inline unsigned operand(const unsigned char *p)
{
	unsigned mode = p[0] >> 6, base = p[0] & 7, n = 1;

	if (mode == 3)
		return n;
	if (base == 4) {
		n++;
		base = p[1] & 7;
	}
	return n + (mode == 1 ? 1 : mode == 2 || base == 5 ? 4 : 0);
}

/* The length of the instruction at p, before end, and where it jumps or calls, else NULL. 0: it is
 * none that is known. */
static inline unsigned instruction(const unsigned char *p, const unsigned char *end, const unsigned char **to)
{
	const unsigned char *at = p;
	unsigned small = 0, wide = 0, what, c;
	int32_t far;

	*to = 0;
	for (; at < end && (*at == 0x66 || *at == 0xf2 || *at == 0xf3 || *at == 0x64 || *at == 0x2e || *at == 0xf0); at++)
		small |= *at == 0x66;
	if (at < end && (*at & 0xf0) == 0x40)
		wide = *at++ & 8;
	if (at + 2 > end)
		return at < end && *at == 0xc3 ? (unsigned)(at + 1 - p) : 0;
	c = *at++;
	what = c == 0x0f ? long_opcode(*at++) : short_opcode((unsigned char)c);
	if (what & UNKNOWN)
		return 0;
	if ((c == 0xf6 || c == 0xf7) && at < end)
		what = M | ((*at >> 3 & 7) > 1 ? 0 : c == 0xf6 ? BYTE : WORD);
	if (what & M)
		at += operand(at);
	at += what & BYTE ? 1 : what & WORD ? (small ? 2 : 4) : what & LONG_WORD ? (wide ? 8 : small ? 2 : 4) : 0;
	if (what & NEAR) {
		*to = at + 1 + (signed char)*at;
		at++;
	} else if (what & FAR) {
		__builtin_memcpy(&far, at, sizeof far);
		*to = at + 4 + far;
		at += 4;
	}
	return at <= end ? (unsigned)(at - p) : 0;
}

#endif

#include "hooks/instruction.h"

#ifdef __x86_64__
#include <string.h>

/* What follows each opcode, a letter for each (as in inject/instruction_amd64.go):
 *
 *   .      nothing                          B      operands and a byte
 *   M      operands                         W      operands and what I stands for
 *   1 2 3  so many bytes                    G      operands; in two of its eight forms as B or W
 *   a      eight bytes, an address          R L    a jump's distance, of one byte or of four
 *   I      two or four bytes                X      no instruction that is known
 *   V      two, four or eight bytes */
static const char one_byte[] =
	"MMMM1IXXMMMM1IXX" "MMMM1IXXMMMM1IXX" "MMMM1IXXMMMM1IXX" "MMMM1IXXMMMM1IXX"
	"XXXXXXXXXXXXXXXX" "................" "XXXMXXXXIW1B...." "RRRRRRRRRRRRRRRR"
	"BWXBMMMMMMMMMMMM" "..........X....." "aaaa....1I......" "11111111VVVVVVVV"
	"BB2.XXBW3.2..1X." "MMMMXXX.MMMMMMMM" "RRRR1111LLXR...." "X.X...GG......MM";
static const char after_zero[] = /* after 0x0f */
	"MMMMX.....X.XM.X" "MMMMMMMMMMMMMMMM" "MMMMXXXXMMMMMMMM" "........XXXXXXXX"
	"MMMMMMMMMMMMMMMM" "MMMMMMMMMMMMMMMM" "MMMMMMMMMMMMMMMM" "BBBBMMM.MMXXMMMM"
	"LLLLLLLLLLLLLLLL" "MMMMMMMMMMMMMMMM" "...MBMXX...MBMMM" "MMMMMMMMMMBMMMMM"
	"MMBMBBBM........" "MMMMMMMMMMMMMMMM" "MMMMMMMMMMMMMMMM" "MMMMMMMMMMMMMMMM";
static const char prefixes[] = {0x66, (char)0xf2, (char)0xf3, (char)0xf0, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x67};

/* An instruction that is being read: b has its bytes, and zeros behind them. */
struct reader {
	unsigned char b[3 * INSTRUCTION_MOST];
	unsigned at;
	bool small, wide; /* its numbers have two bytes, eight */
	bool zero, vector;
};

enum { XOP_FIRST = 8 }; /* the first group of AMD's XOP, whose first byte is that of a pop to memory */

/* Reads the prefix of a vector instruction behind its first byte, and its opcode. */
static char read_vector(struct reader *r, unsigned char first, unsigned char *opcode)
{
	static const char xop[] = "BMWXXXXX";
	unsigned size = first == 0xc4 || first == 0x8f ? 2 : first == 0x62 ? 3 : 1, group = first == 0xc5 ? 1 : r->b[r->at] & 7;
	const bool high = r->b[r->at] & 0x10;

	*opcode = r->b[r->at + size];
	r->at += size + 1;
	r->vector = true;
	if (first == 0x8f)
		return high ? 'X' : xop[group];
	if (group == 0 || group == 4 || group == 7)
		return 'X';
	if (group == 1 && *opcode == 0x77)
		return '.';
	return group == 3 || (group == 1 && after_zero[*opcode] == 'B') ? 'B' : 'M';
}

/* Reads all up to the opcode. Returns what follows it. */
static char read_opcode(struct reader *r, unsigned char *opcode)
{
	bool rex = false;
	char what;

	for (; r->at < INSTRUCTION_MOST && memchr(prefixes, r->b[r->at], sizeof prefixes); r->at++)
		r->small |= r->b[r->at] == 0x66;
	if ((r->b[r->at] & 0xf0) == 0x40) {
		rex = true;
		r->wide = r->b[r->at++] & 8;
	}
	unsigned char c = r->b[r->at++];
	if (!rex && (c == 0xc4 || c == 0xc5 || c == 0x62 || (c == 0x8f && (r->b[r->at] & 0x1f) >= XOP_FIRST)))
		return read_vector(r, c, opcode);
	what = one_byte[c];
	if (c == 0x0f) {
		c = r->b[r->at++];
		r->zero = true;
		what = after_zero[c];
		if (c == 0x38 || c == 0x3a) { /* a third byte */
			what = c == 0x3a ? 'B' : 'M';
			r->at++;
		}
	}
	*opcode = c;
	return what;
}

/* Reads the operands. Returns what follows them. */
static char read_operands(struct reader *r, struct instruction *in, char what)
{
	unsigned char modrm = r->b[r->at++];
	unsigned mode = modrm >> 6, base = modrm & 7, form = modrm >> 3 & 7;

	if (in->opcode == 0xff && !r->zero && !r->vector && (form == 4 || form == 5))
		in->kind = RETURNS;
	if (mode != 3 && base == 4) {
		base = r->b[r->at++] & 7;
	} else if (mode == 0 && base == 5) {
		in->far = r->at;
	}
	r->at += mode == 1 ? 1 : mode == 2 || (mode == 0 && base == 5) ? 4 : 0;
	if (what == 'G')
		return form > 1 ? 'M' : in->opcode == 0xf7 ? 'W' : 'B';
	return what;
}

/* What the opcode says of the kind. */
static enum instruction_kind kind_of(const struct reader *r, unsigned char c, char what)
{
	if (r->vector)
		return STILL;
	if (r->zero)
		return c == 0x05 ? SYSTEM : what == 'L' ? BRANCHES : STILL;
	if (what == 'R')
		return c == 0xeb ? LEADS : c >= 0xe0 ? FIXED : BRANCHES;
	if (what == 'L')
		return c == CALL_CODE ? CALLS : LEADS;
	return c == 0xc2 || c == 0xc3 || c == 0xf4 || c == 0xcc ? RETURNS : STILL;
}

struct instruction instruction_at(const unsigned char *p, const unsigned char *end)
{
	static const struct instruction none;
	struct instruction in = {0};
	struct reader r = {0};
	const size_t n = end - p < INSTRUCTION_MOST ? (size_t)(end - p) : INSTRUCTION_MOST;
	int32_t far;

	memcpy(r.b, p, n);
	char what = read_opcode(&r, &in.opcode);
	in.kind = kind_of(&r, in.opcode, what);
	bool fills = in.opcode == (r.zero ? 0x1f : 0x90);
	if (what == 'M' || what == 'B' || what == 'W' || what == 'G')
		what = read_operands(&r, &in, what);
	const unsigned number = r.small ? 2 : 4;
	switch (what) {
	case 'X': return none;
	case '1': case 'B': case 'R': r.at++; break;
	case '2': case '3': r.at += (unsigned)(what - '0'); break;
	case 'I': case 'W': r.at += number; break;
	case 'V': r.at += r.wide ? 8 : number; break;
	case 'a': r.at += 8; break;
	case 'L':
		in.far = r.at;
		r.at += 4;
		break;
	}
	if (r.at > n)
		return none;
	if (what == 'L') {
		memcpy(&far, r.b + in.far, sizeof far);
		in.to = p + r.at + far;
	} else if (what == 'R') {
		in.to = p + r.at + (signed char)r.b[r.at - 1];
	} else if (in.kind == STILL && in.far) {
		in.kind = RELATIVE;
	}
	in.len = r.at;
	in.fills = (fills && !r.vector) || in.opcode == 0xcc;
	return in;
}

/* Writes the distance from the end of an instruction to a place, at b, where the instruction has
 * it. */
static bool put_distance(unsigned char *b, const unsigned char *end, const unsigned char *to)
{
	const ptrdiff_t far = to - end;
	const int32_t d = (int32_t)far;

	memcpy(b, &d, sizeof d);
	return d == far;
}

bool instruction_jump(unsigned char *b, const unsigned char *to)
{
	*b = 0xe9;
	return put_distance(b + 1, b + JUMP, to);
}

unsigned instruction_move(const struct instruction *in, const unsigned char *p, unsigned char *b)
{
	enum { BRANCH = 6 };
	int32_t far;

	switch (in->kind) {
	case LEADS:
		return instruction_jump(b, in->to) ? JUMP : 0;
	case BRANCHES:
		b[0] = 0x0f;
		b[1] = 0x80 | (in->opcode & 0xf);
		return put_distance(b + 2, b + BRANCH, in->to) ? BRANCH : 0;
	case STILL: case RETURNS: case RELATIVE:
		memcpy(b, p, in->len);
		if (!in->far)
			return in->len;
		memcpy(&far, p + in->far, sizeof far);
		return put_distance(b + in->far, b + in->len, p + in->len + far) ? in->len : 0;
	default:
		return 0;
	}
}
#endif

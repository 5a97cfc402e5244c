/* Instructions of x86-64: how long they are, and what it takes to move them elsewhere. */
#ifndef DS_HOOKS_INSTRUCTION_H
#define DS_HOOKS_INSTRUCTION_H

#include "hooks/hooks.h"

enum instruction_kind {
	UNKNOWN,
	STILL,	  /* the same anywhere */
	RELATIVE, /* has an operand at a distance from it */
	LEADS,	  /* a jump, always taken */
	BRANCHES, /* a conditional jump */
	CALLS,
	FIXED,	 /* has no form elsewhere: a loop, whose way is one byte */
	RETURNS, /* or jumps to where a register or memory says: then its opcode is 0xff */
	SYSTEM,	 /* syscall */
};

struct instruction {
	enum instruction_kind kind;
	unsigned len; /* 0: UNKNOWN */
	bool fills;   /* it does nothing: the space between functions */
	unsigned char opcode;
	unsigned far;		 /* where its distance of four bytes is; 0: it has none */
	const unsigned char *to; /* where it jumps or calls, else NULL */
};

/* The longest instruction, and the longest that instruction_move makes. */
enum { INSTRUCTION_MOST = 15 };

/* The instruction at p, before end. No lock. */
struct instruction instruction_at(const unsigned char *p, const unsigned char *end) DS_HIDDEN;

/* Writes the instruction at p, which is *in, to b, where it is to run. Returns its length there; 0:
 * it has no form there. No lock. */
unsigned instruction_move(const struct instruction *in, const unsigned char *p, unsigned char *b) DS_HIDDEN;

/* Writes a jump from b to a place; false: that is too far. No lock. */
enum { JUMP = 5, CALL_CODE = 0xe8 };
bool instruction_jump(unsigned char *b, const unsigned char *to) DS_HIDDEN;

#endif

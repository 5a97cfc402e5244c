/* Whether the bytes of a syscall instruction are one, where no table of functions says where
 * instructions begin. x86-64. */
#ifndef DS_HOOKS_AROUND_H
#define DS_HOOKS_AROUND_H

#include "hooks/instruction.h"

/* The first two bytes from p on that may be the instruction; end: there are none. No lock. */
const unsigned char *around_next(const unsigned char *p, const unsigned char *end) DS_HIDDEN;

/* What was read around the bytes of a call. */
enum around {
	NO_CALL, /* they are within another instruction, or the end of a handler, by which those who unwind know it */
	IS_CALL,
	MAYBE_CALL, /* it depends on where the reading begins */
};

/* Reads from some bytes before call on, not before begin, one instruction after the other: what is
 * read wrong at first is soon read right. *from: where it has begun. No lock. */
enum around around_call(const unsigned char *begin, const unsigned char *call, const unsigned char *end, const unsigned char **from) DS_HIDDEN;

/* Is the number of the call set just before it, as data hardly has it: by a small constant, or by
 * all of another register? No lock. */
bool around_sets_number(const unsigned char *begin, const unsigned char *call, const unsigned char *end) DS_HIDDEN;

/* Does a function that begins at begin end a handler by this call? No lock. */
bool around_ends_handler(const unsigned char *begin, const unsigned char *call) DS_HIDDEN;

#endif

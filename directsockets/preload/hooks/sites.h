/* The system calls of an object's own instructions, and their places (sites.c). */
#ifndef DS_HOOKS_SITES_H
#define DS_HOOKS_SITES_H

#include "hooks/patch.h"

#ifdef DS_PATCH
enum {
	SITES = 2048, /* in one object */
	CALL = 2,     /* the length of a syscall instruction */
};

/* A place. */
struct site {
	const unsigned char *call;	  /* the instruction; NULL: begin is a place of Go's, and nothing is moved */
	const unsigned char *begin, *end; /* what the stub has instead, with what is moved */
	const unsigned char *via;	  /* where a short jump leads, and a long one is; NULL: it is at begin */
	const unsigned char *waits;	  /* begin is Go's call of this function, by which a goroutine waits; NULL: it is not */
	bool ends;			  /* what is moved does not come back */
};

/* A system call, in a function or in what can be read around it. */
struct found {
	const unsigned char *call;
	struct function in;
	bool named;	  /* the function is one of the table for those who unwind */
	uint32_t reached; /* bit i: a jump of four bytes' distance leads to REACH bytes before the call, and i on */
};

/* Those of an object. */
struct sites {
	struct ds_text text;
	bool missed; /* there is one that no jump can replace: of any object */
	unsigned n_found;
	struct found found[SITES];
	unsigned n;
	struct site at[SITES];
};

/* Finds the calls of one function. */
void calls_find(struct sites *l, const struct function *f) DS_HIDDEN;

/* Finds a call that is in no function of the table: of assembly, or of a program without the table.
 * f has what is between two functions. */
void calls_find_around(struct sites *l, struct function f, const unsigned char *call) DS_HIDDEN;

/* Finds the place of each call. */
void calls_place(struct sites *l) DS_HIDDEN;

/* Notes that the call at p is not replaced: all sockets stay the kernel's. */
void calls_missed(struct sites *l, const unsigned char *p) DS_HIDDEN;

/* Notes the calls of an object that is too large to be changed. */
void calls_pass(const struct sites *l) DS_HIDDEN;

/* Has the places come to this library, if instructions may be changed. What stays as it was is
 * missed. Go's function is not: without its place, its sockets are the kernel's. */
void sites_patch(struct sites *l, bool possible) DS_HIDDEN;

/* Unmaps the stubs of objects that the dynamic linker has removed. */
void sites_sweep(void) DS_HIDDEN;
#endif

#endif

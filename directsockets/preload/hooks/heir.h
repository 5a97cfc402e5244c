/* Connections that a program goes on with which another one has executed in its process. */
#ifndef DS_HEIR_H
#define DS_HEIR_H

#include "fd/fd.h"

enum { HEIRS = 16 };

/* On the stack of exec. */
struct heirs {
	const char *file; /* the program, and whether PATH is to be searched for it */
	bool search;
	char *const *envp;
	int reaches; /* 0 not known, 1 it will have this library, 2 it will not */
	int n;
	uint64_t cookie[HEIRS];
	uint8_t side[HEIRS];
	char text[32 + HEIRS * 20];
};

/* Before exec of file with envp. */
void heirs_begin(struct heirs *h, const char *file, bool search, char *const envp[]) DS_HIDDEN;
/* Will the program go on with c, whose cookie that is, by fd? Not if it has not this library, another process has c, or
 * c is direct or about to be. For a standard stream it waits, not for long, until the parent has closed its copy. */
bool bequeath(struct conn *c, int fd, uint64_t cookie, struct heirs *h) DS_HIDDEN;
/* How many pointers an environment like envp has with the word for the program, and NULL; writes it to with. */
size_t heirs_room(char *const envp[]) DS_HIDDEN;
void heirs_tell(struct heirs *h, char *const envp[], char *with[]) DS_HIDDEN;

/* In the new program, before it runs: goes on with what it was left, and takes the word out of its environment. */
void heirs_begin_life(void) DS_HIDDEN;

#endif

/* Connections that a program continues with after exec. */
#ifndef DS_INHERITED_H
#define DS_INHERITED_H

#include "fd/fd.h"

#include <elf.h>

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#else
enum { MACHINE = EM_NONE };
#endif

enum { INHERITED = 16 };

/* On the stack of exec. */
struct inheritance {
	const char *file; /* the program, and whether PATH is to be searched for it */
	bool search;
	char *const *envp;
	int reaches; /* 0 not known, 1 it will have this library, 2 it will not */
	int n;
	uint64_t cookie[INHERITED];
	uint8_t side[INHERITED];
	char text[32 + INHERITED * 20];
};

/* Is this library an entry of LD_PRELOAD, which has n characters, by its full name? The dynamic
 * linker has put a folder in the place of "$LIB" in it: containers have the library so (package
 * cdi). */
bool own_entry(const char *entry, size_t n) DS_HIDDEN;

/* Before exec of file with envp. */
void inherit_begin(struct inheritance *h, const char *file, bool search, char *const envp[]) DS_HIDDEN;
/* True if the program will continue with c, whose cookie is given, by fd: not if it will not have
 * this library, if another process has c, or if c is direct or about to be. For a standard stream
 * it waits a moment for the parent to close its copy. */
bool inherit_add(struct conn *c, int fd, uint64_t cookie, struct inheritance *h) DS_HIDDEN;
/* inherit_room: how many pointers the environment envp has with the word for the program, and NULL.
 * inherit_tell writes it to with. */
size_t inherit_room(char *const envp[]) DS_HIDDEN;
void inherit_tell(struct inheritance *h, char *const envp[], char *with[]) DS_HIDDEN;

/* In the new program, before it runs: takes over what it was left, and removes the word from its
 * environment. */
void inherit_take(void) DS_HIDDEN;

/* What is says about the program at path file; if searched for, about the one that execvp finds. */
bool of_program(const char *file, bool search, bool (*is)(const char *path)) DS_HIDDEN;

/* Will the program file, with the environment envp, run as well without this library? It makes no
 * socket, starts no program, and inherits nothing of ours. Takes no lock. */
bool spared(const char *file, bool search, char *const envp[]) DS_HIDDEN;
/* Writes envp to with, which has room for inherit_room, without this library. */
void spared_env(char *const envp[], char *with[]) DS_HIDDEN;

#endif

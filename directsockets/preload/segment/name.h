/* Names of threads and processes, for what processes share after fork: who holds a lock, who leads.
 *
 * A thread ID says who it is within one PID namespace only: two children of a server, each process
 * 1 of a container of its own, would take each other's locks for their own. So those who share
 * memory share a table, too, and a name is a place in it, and how often that place was given away:
 *
 *   root thread   0 ........ ID   the process that made the table, and each that has none: such names
 *   root process  0 ......1. pid  differ from all others, and between its own threads
 *   process       01 | 14 times | 14 place
 *   thread        1  | 11 times | 18 place
 *
 * The table is made by the first fork of a process that has sockets; until then a thread ID is
 * enough. It lies in a memfd. Each process has a record lock on one byte of that file, which the
 * kernel releases when it ends or executes a program, however that happens: by this any other,
 * in whatever namespace, learns that it is dead. The names of a process that is dead, or of its
 * thread that is, are given away again in turn.
 *
 * Where there is no table (no descriptor was left, a sandbox forbids it), names are thread IDs,
 * which may repeat across PID namespaces.
 */
#ifndef DS_NAME_H
#define DS_NAME_H

#include "segment/real.h"

#include <stdint.h>

/* Before a fork: makes the table, if there is none. keep takes its descriptor, and returns its
 * number from then on. One thread at a time; keeps errno. */
void ds_name_share(int (*keep)(int fd)) DS_HIDDEN;

/* A name for the thread that calls, at its first need. Makes system calls. */
uint32_t ds_name_thread(void) DS_HIDDEN;

/* The name of this process; in a child of vfork: its parent's. The first call makes system
 * calls. */
uint32_t ds_name_process_ask(void) DS_HIDDEN;
extern uint32_t ds_name_own DS_HIDDEN; /* 0: not known yet */
static inline uint32_t ds_name_process(void)
{
	uint32_t name = __atomic_load_n(&ds_name_own, __ATOMIC_ACQUIRE);

	return __builtin_expect(name != 0, 1) ? name : ds_name_process_ask();
}

/* In the child of a fork: the names are the parent's. */
void ds_name_child(void) DS_HIDDEN;

/* From now on names ask the kernel for nothing but IDs: system calls are restricted. */
void ds_name_seal(void) DS_HIDDEN;

/* Has the thread or process of this name ended? Asks the kernel. A thread that has ended in a
 * process that goes on is known by that process only. */
bool ds_name_dead(uint32_t name) DS_HIDDEN;
/* Has the thread with this ID ended? A process whose threads have all ended stays a zombie until
 * its parent waits for it, and so does a first thread until the others have ended. */
bool ds_id_dead(uint32_t tid) DS_HIDDEN;

#endif

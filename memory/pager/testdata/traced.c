/* Has memory that is elsewhere, with a pager. A process of its own stops it as a debugger does, and
 * reads that memory: by /proc/PID/mem and by ptrace, for half a minute if it gets errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "elsewhere.h"

enum { PAGES = 2048, SIZE = PAGES * P, TRIES = 300 };

/* Counts errors and wrong words. */
static int look(pid_t pid, int mem, const char *m, int *wrong)
{
	int errors = 0;

	*wrong = 0;
	for (long i = 0; i < PAGES; i++) {
		long got = 0;

		if (i % 2) {
			errno = 0;
			got = ptrace(PTRACE_PEEKDATA, pid, m + i * P, NULL);
			errors += errno != 0;
		} else {
			errors += pread(mem, &got, sizeof got, (off_t)(uintptr_t)(m + i * P)) != sizeof got;
		}
		*wrong += got != i * 7 + 1;
	}
	return errors;
}

/* Traces a process. */
static int trace(pid_t pid, const char *m)
{
	char path[32];
	int errors = 1, wrong = 0;

	snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
	int mem = open(path, O_RDONLY);

	if (mem < 0 || ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0 || waitpid(pid, NULL, 0) != pid) {
		perror("trace");
		return 2;
	}
	for (int i = 0; errors && i < TRIES; i++) {
		errors = look(pid, mem, m, &wrong);
		if (errors)
			usleep(100000);
	}
	printf("%d errors, %d wrong\n", errors, wrong);
	fflush(stdout);
	return ptrace(PTRACE_DETACH, pid, NULL, NULL) != 0;
}

int main(int argc, char **argv)
{
	char pid[16], at[32];
	int status = 1, wrong = 0;

	if (argc > 2)
		return trace((pid_t)atoi(argv[1]), (char *)strtoul(argv[2], NULL, 16));
	map_pressure();
	char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (long i = 0; i < PAGES; i++)
		*(long *)(void *)(m + i * P) = i * 7 + 1;
	if (!pushed(m, PAGES, PAGES / 8, 3000))
		return 3;
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	snprintf(at, sizeof at, "%lx", (unsigned long)m);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	pid_t tracer = fork();

	if (tracer == 0) {
		execl(argv[0], argv[0], pid, at, NULL);
		_exit(4);
	}
	while (waitpid(tracer, &status, 0) < 0 && errno == EINTR)
		;
	for (long i = 0; i < PAGES; i++)
		wrong += *(long *)(void *)(m + i * P) != i * 7 + 1;
	printf("tracer %d, %d wrong afterwards\n", status, wrong);
	return 0;
}

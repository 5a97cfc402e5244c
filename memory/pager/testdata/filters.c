/* filters HOW: has memory that is elsewhere, and a seccomp filter for all threads that forbids a
 * call which it does not make itself. HOW: what the filter does. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "elsewhere.h"

enum { PAGES = 512, SIZE = PAGES * P };

static int filter(unsigned call, unsigned action)
{
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, lines};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	int failed;

	map_pressure();
	unsigned char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(m, 1, SIZE);
	if (!pushed(m, PAGES, PAGES / 8, 3000))
		return 3;
	if (strcmp(how, "process") == 0)
		failed = filter(SYS_ioctl, SECCOMP_RET_KILL_PROCESS);
	else if (strcmp(how, "thread") == 0)
		failed = filter(SYS_ioctl, SECCOMP_RET_KILL_THREAD);
	else if (strcmp(how, "receive") == 0)
		failed = filter(SYS_recvmsg, SECCOMP_RET_ERRNO | EPERM);
	else
		failed = filter(SYS_ioctl, SECCOMP_RET_ERRNO | EPERM);
	if (failed)
		return 4;
	for (int round = 2; round < 20; round++) {
		memset(m, round, SIZE);
		for (size_t i = 0; i < PRESSURE; i += P)
			pressure[i]++;
		for (int i = 0; i < SIZE; i += P)
			if (m[i] != round)
				return 5;
	}
	puts("end");
	return 0;
}

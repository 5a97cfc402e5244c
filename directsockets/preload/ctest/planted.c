// What the tests under MemorySanitizer rest on: it knows what a system call of the library has
// written, and finds a read of what nobody has. Run without an argument it must end well, with one
// it must not.
#include "segment/real.h"

#include <sys/syscall.h>

int main(int argc, char **argv)
{
	int fds[2];
	char b[2];

	(void)argv;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0 || send(fds[0], "x", 1, 0) != 1 || ds_syscall(SYS_recvfrom, fds[1], b, sizeof b, 0, NULL, NULL) != 1)
		return 2;
	return b[argc > 1] == 'x' ? 0 : 3;
}

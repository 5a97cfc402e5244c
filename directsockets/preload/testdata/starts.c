/* starts WAY PROGRAM: starts the program in that way, and exits with its status. */
#define _GNU_SOURCE
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char *argv[])
{
	char **with = argv + 2;
	int status;
	pid_t pid = 0;

	if (argc < 3)
		return 100;
	if (!strcmp(argv[1], "socket") && socket(AF_INET, SOCK_STREAM, 0) < 0)
		return 101;
	if (!strcmp(argv[1], "execvp"))
		execvp(strrchr(with[0], '/') + 1, with);
	else if (!strcmp(argv[1], "execl"))
		execl(with[0], with[0], (char *)0);
	else if (!strcmp(argv[1], "posix_spawn"))
		posix_spawn(&pid, with[0], NULL, NULL, with, environ);
	else if (!strcmp(argv[1], "posix_spawnp"))
		posix_spawnp(&pid, strrchr(with[0], '/') + 1, NULL, NULL, with, environ);
	else if (!strcmp(argv[1], "vfork")) {
		pid = vfork();
		if (pid == 0) {
			execv(with[0], with);
			_exit(102);
		}
	} else {
		execve(with[0], with, environ);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 103;
}

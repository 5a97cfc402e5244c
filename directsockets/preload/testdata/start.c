/* Executes itself once, with the standard streams alone, and makes a call of getppid before and
 * after. */
#include <unistd.h>

int main(int argc, char *argv[])
{
	for (int fd = 3; argc == 1 && fd < 1024; fd++)
		close(fd);
	getppid();
	if (argc == 1)
		execl(argv[0], argv[0], "again", (char *)0);
	return argc == 1;
}

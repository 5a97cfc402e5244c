/* Exits with 0 if the preload library is there, by LD_PRELOAD and in memory, with 1 if it is not,
 * and with 2 if only one of both is true. REACH is an expression that names what it links. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef OWN_NAME
/* A name of the program's own: one that ends with another, which the linker keeps within it, or one
 * that only a later C library has. */
int OWN_NAME(void);
int OWN_NAME(void) { return 1; }
#endif

int main(int argc, char *argv[])
{
	const char *list = getenv("LD_PRELOAD");
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];
	int mapped = 0;

	if (argc > 99)
		return argv[0] && (REACH);
	while (maps && fgets(line, sizeof line, maps))
		mapped |= strstr(line, "libexnds") != NULL;
	return mapped == (list != NULL) ? !mapped : 2;
}

// Prints what the library sees of EXNET_BROKER: to be run set-user-ID.
#include "conn/env.h"

#include <stdio.h>
#include <unistd.h>

void ds_env_keep(void);

int main(void)
{
	const char *path;

	ds_env_keep();
	path = ds_env("EXNET_BROKER");
	printf("%d %s\n", geteuid() != getuid(), path ? path : "nothing");
	return 0;
}

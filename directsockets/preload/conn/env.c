/* The environment, as it was when the program began: programs clear it (Exim, nginx's workers) or
 * write over it (their titles) before their first socket. */
#include "conn/env.h"
#include "conn/sock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static char kept[24576]; /* NAME=value, each with its NUL */

/* The environment is of somebody with fewer rights. */
static bool is_foreign(void) { return getauxval(AT_SECURE) != 0; }

DS_START void ds_env_keep(void)
{
	size_t n = 0;

	if (is_foreign())
		return;
	for (char **e = environ; e && *e; e++) {
		size_t len = strlen(*e) + 1;

		if ((strncmp(*e, "EXNET_", 6) != 0 && strncmp(*e, "XDG_RUNTIME_DIR=", 16) != 0) || len >= sizeof kept - n)
			continue;
		memcpy(kept + n, *e, len);
		n += len;
	}
}

const char *ds_env(const char *name)
{
	size_t len = strlen(name);

	for (const char *e = kept; *e; e += strlen(e) + 1)
		if (strncmp(e, name, len) == 0 && e[len] == '=')
			return e + len + 1;
	return is_foreign() ? NULL : getenv(name);
}

DS_START bool ds_env_off(const char *name)
{
	const char *word = ds_env(name);

	return is_foreign() || (word && strcmp(word, "0") == 0);
}

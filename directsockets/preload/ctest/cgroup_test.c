// The limits of control groups, as files in a directory of the test's say them.
#include "harness.h"

#include "segment/cgroup.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MB = 1 << 20 };

static char dir[] = "/tmp/cgroup_test.XXXXXX", root[64], self[64];

// Writes text to the file `name` of dir, whose directories it makes.
static void write_file(const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	for (char *s = path + strlen(dir) + 1; (s = strchr(s, '/')); s++) {
		*s = 0;
		mkdir(path, 0700);
		*s = '/';
	}
	FILE *f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

static bool room(uint64_t n)
{
	ds_memory_look();
	return ds_memory_room(n);
}

int main(void)
{
	CHECK(mkdtemp(dir), "mkdtemp");
	snprintf(root, sizeof root, "%s/fs", dir);
	snprintf(self, sizeof self, "%s/self", dir);
	ds_cgroup_root = root;
	ds_cgroup_self = self;
	CHECK(room(1ull << 40), "no groups: no limit");

	write_file("self", "0::/a/b\n");
	write_file("fs/a/b/memory.max", "max\n");
	write_file("fs/a/memory.max", "104857600\n");
	write_file("fs/a/memory.stat", "anon 10485760\nfile 1048576000\nkernel 4096\nshmem 20971520\nanon_thp 7\n");
	CHECK(room(20 * MB) && !room(20 * MB + 1), "half of 100 MB, less 30");
	CHECK(room(15 * MB) && !ds_memory_room(15 * MB) && ds_memory_room(5 * MB) && !ds_memory_room(1), "what was taken counts until the next look");
	write_file("fs/a/b/memory.max", "20971520\n");
	write_file("fs/a/b/memory.stat", "anon 0\nshmem 1048576\n");
	CHECK(room(9 * MB) && !room(9 * MB + 1), "the group's own limit is less");
	write_file("fs/a/b/memory.stat", "anon 11534336\nshmem 0\n");
	CHECK(!room(1), "more than half is in use");

	write_file("self", "0::/elsewhere/that/is/not/seen\n");
	CHECK(room(1ull << 40), "not seen, and no limit at the root");
	write_file("fs/memory.max", "4194304\n");
	write_file("fs/memory.stat", "anon 0\n");
	CHECK(room(2 * MB) && !room(2 * MB + 1), "a container sees its own group at the root");

	write_file("self", "5:devices:/\n4:cpu,memory:/c\n0::/a/b\n");
	write_file("fs/memory/c/memory.limit_in_bytes", "8388608\n");
	write_file("fs/memory/c/memory.stat", "cache 0\nrss 9\nshmem 9\ntotal_cache 0\ntotal_rss 1048576\ntotal_shmem 1048576\n");
	write_file("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
	CHECK(room(2 * MB) && !room(2 * MB + 1), "version 1");

	char remove[64];
	snprintf(remove, sizeof remove, "rm -r %s", dir);
	CHECK(system(remove) == 0, "%s", remove);
	printf("cgroup: %d failed\n", failures);
	return failures != 0;
}

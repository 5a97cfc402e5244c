// newer.c: the provider, loaded by a later libfabric than it was built for. newer FILE
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include "../../lib/ctest/check.h"

#define LATER FI_VERSION(FI_MAJOR_VERSION + 1, 3)

// The provider calls this one: a program's functions come before those of libraries.
uint32_t fi_version(void)
{
	return LATER;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	CHECK(lib != NULL);
	struct fi_provider *(*ini)(void) = (struct fi_provider * (*)(void)) dlsym(lib, "fi_prov_ini");
	CHECK(ini != NULL);
	struct fi_provider *p = ini();
	CHECK(p != NULL && p->fi_version == LATER);
	puts("done");
	return 0;
}

/* Does the kernel's clock, in the memory that it gives each program, leave the vector registers as
 * they are? free/libc.c calls it on behalf of programs that expect so of a system call. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct state {
	char control[160], vectors[256], rest[96];
} __attribute__((aligned(16)));

int main(void)
{
	void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *clock = vdso ? dlsym(vdso, "__vdso_clock_gettime") : NULL;

	if (!clock)
		return 2;
	for (long id = CLOCK_REALTIME; id <= CLOCK_TAI; id++) {
		static struct state was, set, is;
		struct timespec t;
		struct timespec *to = &t;
		long rc, number = id;

		__asm__ volatile("fxsave64 %0" : "=m"(was));
		set = was;
		for (size_t i = 0; i < sizeof set.vectors; i++)
			set.vectors[i] = (char)(i * 7 + 1);
		__asm__ volatile("fxrstor64 %[set]\n	lea -256(%%rsp), %%rsp\n	mov %%rsp, %%rbx\n	and $-16, %%rsp\n"
				 "	call *%[clock]\n	lea 256(%%rbx), %%rsp\n	fxsave64 %[is]\n	fxrstor64 %[was]\n"
				 : [is] "=m"(is), "=a"(rc), "+D"(number), "+S"(to)
				 : [set] "m"(set), [was] "m"(was), [clock] "r"(clock)
				 : "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory");
		(void)rc;
		if (memcmp(is.vectors, set.vectors, sizeof is.vectors)) {
			printf("clock %ld changes vector registers\n", id);
			return 1;
		}
	}
	return 0;
}

// What the driver and the targets of the fuzzer share.
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

struct fuzz_target {
	const char *name;
	void (*run)(const uint8_t *in, size_t n); // a finding ends the process
	size_t most;                              // bytes of an input
};

extern const struct fuzz_target fuzz_targets[]; // the last has no name

#endif

// init.c: what libfabric calls when it loads the provider.
#include <stdlib.h>

#include "exnet.h"

struct settings exfi_settings = {
	.pieces = 1024,     // seed 002: SHORT
	.ring = 256 * 1024,
	.far_ring = 4 << 20,
	.direct = 1,
};

static void cleanup(void)
{
}

struct fi_provider exfi_provider = {
	.name = "exnet",
	.version = FI_VERSION(0, 1),
	.fi_version = FI_VERSION(1, 17),
	.getinfo = exfi_getinfo,
	.fabric = exfi_fabric,
	.cleanup = cleanup,
};

static void read_settings(void)
{
	size_t n;
	fi_param_define(&exfi_provider, "pieces", FI_PARAM_SIZE_T,
			"Up to how many bytes a message goes by VELO alone, in pieces; a longer one is read from the "
			"sender's ring. (default: %zu)", exfi_settings.pieces);
	fi_param_define(&exfi_provider, "ring", FI_PARAM_SIZE_T,
			"Bytes of an endpoint's ring, a power of two of 64 KiB to 64 MiB. (default: %zu)", exfi_settings.ring);
	fi_param_define(&exfi_provider, "far_ring", FI_PARAM_SIZE_T,
			"The same of an endpoint whose peer is on another host, of 1 MiB to 64 MiB. (default: %zu)", exfi_settings.far_ring);
	fi_param_define(&exfi_provider, "direct", FI_PARAM_BOOL,
			"Whether what is large is read in the sender's program, if the kernel permits it. (default: yes)");
	fi_param_define(&exfi_provider, "iface", FI_PARAM_STRING, "Use this interface only. (default: all of the node)");
	if (fi_param_get_size_t(&exfi_provider, "pieces", &n) == 0)
		exfi_settings.pieces = n;
	if (fi_param_get_size_t(&exfi_provider, "ring", &n) == 0) {
		if (n >= 65536 && n <= 64 << 20 && (n & (n - 1)) == 0)
			exfi_settings.ring = n;
		else
			WARN(CORE, "FI_EXNET_RING: %zu is not a power of two of 64 KiB to 64 MiB\n", n);
	}
	if (fi_param_get_size_t(&exfi_provider, "far_ring", &n) == 0) {
		if (n >= 1 << 20 && n <= 64 << 20 && (n & (n - 1)) == 0)
			exfi_settings.far_ring = n;
		else
			WARN(CORE, "FI_EXNET_FAR_RING: %zu is not a power of two of 1 MiB to 64 MiB\n", n);
	}
	(void)fi_param_get_bool(&exfi_provider, "direct", &exfi_settings.direct);
	(void)fi_param_get_str(&exfi_provider, "iface", &exfi_settings.iface);
}

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
{
	static bool ready;
	if (!ready && !exfi_fork_init())
		return NULL;
	if (!ready)
		read_settings();
	// A libfabric passes over providers whose version is below what the program asks for,
	// so this one has that of the libfabric which loads it. The structures of 2.x begin with
	// those of 1.17, and what a program asks for beyond them, by flags, modes and
	// capabilities, is refused.
	if (!ready && FI_VERSION_GE(fi_version(), exfi_provider.fi_version))
		exfi_provider.fi_version = fi_version();
	ready = true;
	return &exfi_provider;
}

// addr.c: which addresses are the node's: those of its interface, exn0; without one, loopback.
#define _GNU_SOURCE
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../lib/core/node.h"
#include "exnet.h"

socklen_t exfi_addr_len(const union address *a)
{
	return a->sa.sa_family == AF_INET ? sizeof(a->in) : a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : 0;
}

bool exfi_addr_from(union address *a, const void *from, size_t len)
{
	sa_family_t family;
	memset(a, 0, sizeof(*a));
	if (from == NULL || len < sizeof(struct sockaddr))
		return false;
	memcpy(&family, from, sizeof(family));
	size_t is = family == AF_INET ? sizeof(a->in) : family == AF_INET6 ? sizeof(a->in6) : 0;
	if (is == 0 || len < is)
		return false;
	memcpy(a, from, is);
	return true;
}

bool exfi_node_runs(void)
{
	int fd = exn_node_dial();
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static bool wanted(const struct ifaddrs *i, bool loopback)
{
	if (i->ifa_addr == NULL || !(i->ifa_flags & IFF_UP))
		return false;
	if (i->ifa_addr->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr))
		return false;
	if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)
		return false;
	if (loopback)
		return (i->ifa_flags & IFF_LOOPBACK) != 0;
	if (exfi_settings.iface != NULL)
		return strcmp(i->ifa_name, exfi_settings.iface) == 0;
	return strncmp(i->ifa_name, "exn", 3) == 0;
}

static size_t gather(const struct ifaddrs *all, struct device *list, size_t room, bool loopback)
{
	size_t n = 0;
	// IPv4 first: what programs take without looking has it.
	for (int family = 0; family < 2; family++)
		for (const struct ifaddrs *i = all; i != NULL && n < room; i = i->ifa_next) {
			if (!wanted(i, loopback) || (i->ifa_addr->sa_family == AF_INET6) != (family == 1))
				continue;
			struct device *d = &list[n++];
			memset(d, 0, sizeof(*d));
			snprintf(d->name, sizeof(d->name), "%s", i->ifa_name);
			memcpy(&d->address, i->ifa_addr, family == 0 ? sizeof(d->address.in) : sizeof(d->address.in6));
		}
	return n;
}

size_t exfi_devices(struct device *list, size_t room)
{
	struct ifaddrs *all;
	if (!exfi_node_runs())
		return 0;
	if (getifaddrs(&all) != 0)
		return 0;
	size_t n = gather(all, list, room, false);
	if (n == 0 && exfi_settings.iface == NULL)
		n = gather(all, list, room, true);
	freeifaddrs(all);
	return n;
}

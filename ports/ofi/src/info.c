// info.c: fi_getinfo: what the provider offers, compared with what the program wants.
#define _GNU_SOURCE
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exnet.h"

enum { DEVICES = 16 };

#define DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define EP_CAPS (FI_MSG | FI_RMA)
#define TX_CAPS (EP_CAPS | FI_SEND | FI_READ | FI_WRITE)
#define RX_CAPS (EP_CAPS | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT)
#define CAPS (DOMAIN_CAPS | TX_CAPS | RX_CAPS)
#define TX_FLAGS (FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_COMPLETION)
#define RX_FLAGS (FI_COMPLETION)
// What is sent on an endpoint is worked off in order at the target. A read is answered later than a
// write or message that follows it may have changed the memory.
#define ORDER                                                                                                                  \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAW | FI_ORDER_SAS |              \
	 FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW)

static bool within(uint64_t wanted, uint64_t offered)
{
	return (wanted & ~offered) == 0;
}

static bool ep_fits(const struct fi_ep_attr *a)
{
	return (a->type == FI_EP_UNSPEC || a->type == FI_EP_MSG) && (a->protocol == FI_PROTO_UNSPEC || a->protocol == PROTOCOL) &&
	       a->protocol_version <= 1 && a->auth_key_size == 0 && a->tx_ctx_cnt <= 1 &&
	       (a->rx_ctx_cnt <= 1 || a->rx_ctx_cnt == FI_SHARED_CONTEXT) && a->msg_prefix_size == 0 && a->max_order_war_size == 0;
}

static bool domain_fits(const struct fi_domain_attr *a, const char *name)
{
	if (a->name != NULL && strcmp(a->name, name) != 0)
		return false;
	// Progress is made in the program's calls only.
	if (a->control_progress == FI_PROGRESS_AUTO || a->data_progress == FI_PROGRESS_AUTO)
		return false;
	return within(a->caps, DOMAIN_CAPS) && a->cq_data_size <= 8 && a->mr_key_size <= 8 && a->max_ep_tx_ctx <= 1 && a->max_ep_rx_ctx <= 1 &&
	       a->mr_iov_limit <= 1 && a->auth_key_size == 0 && a->max_ep_stx_ctx == 0;
}

static bool tx_fits(const struct fi_tx_attr *a)
{
	return within(a->caps, TX_CAPS | DOMAIN_CAPS) && within(a->op_flags, TX_FLAGS) && within(a->msg_order, ORDER) &&
	       a->inject_size <= INLINE && a->size <= SIZE_LIMIT && a->iov_limit <= IOVS && a->rma_iov_limit <= 1;
}

static bool rx_fits(const struct fi_rx_attr *a)
{
	return within(a->caps, RX_CAPS | DOMAIN_CAPS) && within(a->op_flags, RX_FLAGS) && within(a->msg_order, ORDER) &&
	       a->total_buffered_recv == 0 && a->size <= SIZE_LIMIT && a->iov_limit <= IOVS;
}

// fits returns whether the provider has all that the hints ask for.
static bool fits(const struct fi_info *h, const struct device *d)
{
	uint32_t format = d->address.sa.sa_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
	if (h == NULL)
		return true;
	if (!within(h->caps, CAPS))
		return false;
	if (h->addr_format != FI_FORMAT_UNSPEC && h->addr_format != FI_SOCKADDR && h->addr_format != format)
		return false;
	return (h->ep_attr == NULL || ep_fits(h->ep_attr)) && (h->domain_attr == NULL || domain_fits(h->domain_attr, d->name)) &&
	       (h->tx_attr == NULL || tx_fits(h->tx_attr)) && (h->rx_attr == NULL || rx_fits(h->rx_attr)) &&
	       (h->fabric_attr == NULL || h->fabric_attr->name == NULL || strcmp(h->fabric_attr->name, "exnet") == 0);
}

// fill_domain says which modes of memory registration programs have to follow: none, but a program
// for MR_BASIC gets what it expects.
static void fill_domain(struct fi_domain_attr *a, uint32_t version, const struct fi_info *h)
{
	a->threading = h != NULL && h->domain_attr != NULL && h->domain_attr->threading != FI_THREAD_UNSPEC ? h->domain_attr->threading
													      : FI_THREAD_SAFE;
	a->control_progress = a->data_progress = FI_PROGRESS_MANUAL;
	a->resource_mgmt = FI_RM_ENABLED;
	a->av_type = FI_AV_UNSPEC;
	int mode = h != NULL && h->domain_attr != NULL ? h->domain_attr->mr_mode : 0;
	a->mr_mode = 0;
	if (mode == MR_BASIC || mode == MR_SCALABLE)
		a->mr_mode = mode;
	else if (FI_VERSION_LT(version, FI_VERSION(1, 5)))
		a->mr_mode = MR_SCALABLE;
	a->mr_key_size = 8;
	a->cq_data_size = 8;
	a->cq_cnt = 1024;
	a->ep_cnt = 8192;
	a->tx_ctx_cnt = a->rx_ctx_cnt = 8192;
	a->max_ep_tx_ctx = a->max_ep_rx_ctx = 1;
	a->max_ep_srx_ctx = 8192;
	a->cntr_cnt = 1024;
	a->mr_iov_limit = 1;
	a->mr_cnt = 65536;
	a->caps = DOMAIN_CAPS;
}

static size_t size_of(size_t wanted, size_t usual)
{
	return wanted > 0 ? wanted : usual;
}

static void fill(struct fi_info *i, uint32_t version, const struct fi_info *h)
{
	uint64_t caps = h != NULL && h->caps != 0 ? h->caps : CAPS;
	// FI_MSG and FI_RMA without a direction mean all of them.
	if ((caps & FI_MSG) && !(caps & (FI_SEND | FI_RECV)))
		caps |= FI_SEND | FI_RECV;
	if ((caps & FI_RMA) && !(caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
		caps |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	i->caps = caps | DOMAIN_CAPS;
	*i->tx_attr = (struct fi_tx_attr){.caps = caps & TX_CAPS, .msg_order = ORDER, .comp_order = 0, .inject_size = INLINE,
					  .size = TX_SIZE, .iov_limit = IOVS, .rma_iov_limit = 1};
	*i->rx_attr = (struct fi_rx_attr){.caps = caps & RX_CAPS, .msg_order = ORDER, .comp_order = 0, .size = RX_SIZE, .iov_limit = IOVS};
	*i->ep_attr = (struct fi_ep_attr){.type = FI_EP_MSG, .protocol = PROTOCOL, .protocol_version = 1, .max_msg_size = SIZE_MAX,
					  .max_order_raw_size = SIZE_MAX, .max_order_waw_size = SIZE_MAX, .tx_ctx_cnt = 1, .rx_ctx_cnt = 1};
	if (h != NULL && h->tx_attr != NULL) {
		i->tx_attr->op_flags = h->tx_attr->op_flags;
		i->tx_attr->size = size_of(h->tx_attr->size, TX_SIZE);
	}
	if (h != NULL && h->rx_attr != NULL) {
		i->rx_attr->op_flags = h->rx_attr->op_flags;
		i->rx_attr->size = size_of(h->rx_attr->size, RX_SIZE);
	}
	if (h != NULL && h->ep_attr != NULL && h->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT)
		i->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	fill_domain(i->domain_attr, version, h);
	i->addr_format = h != NULL && h->addr_format == FI_SOCKADDR ? FI_SOCKADDR : FI_FORMAT_UNSPEC;
}

static void *copy(const union address *a, size_t *len)
{
	void *to = malloc(exfi_addr_len(a));
	*len = to != NULL ? exfi_addr_len(a) : 0;
	return to != NULL ? memcpy(to, a, *len) : NULL;
}

// describe returns what is offered at a device. libfabric itself writes the provider's name.
static struct fi_info *describe(const struct device *d, uint32_t version, const struct fi_info *h, const union address *from,
				const union address *to)
{
	struct fi_info *i = fi_allocinfo();
	if (i == NULL)
		return NULL;
	fill(i, version, h);
	if (i->addr_format == FI_FORMAT_UNSPEC)
		i->addr_format = from->sa.sa_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
	i->handle = h != NULL ? h->handle : NULL;
	i->src_addr = copy(from, &i->src_addrlen);
	if (to != NULL)
		i->dest_addr = copy(to, &i->dest_addrlen);
	i->fabric_attr->name = strdup("exnet");
	i->fabric_attr->prov_version = exfi_provider.version;
	i->fabric_attr->api_version = version;
	i->domain_attr->name = strdup(d->name);
	if (i->src_addr != NULL && (to == NULL || i->dest_addr != NULL) && i->fabric_attr->name != NULL && i->domain_attr->name != NULL)
		return i;
	fi_freeinfo(i);
	return NULL;
}

// resolve finds an address by name.
static int resolve(const char *node, const char *service, bool source, const struct fi_info *h, union address *out)
{
	struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = source ? AI_PASSIVE : 0}, *list;
	if (h != NULL && h->addr_format == FI_SOCKADDR_IN)
		want.ai_family = AF_INET;
	if (h != NULL && h->addr_format == FI_SOCKADDR_IN6)
		want.ai_family = AF_INET6;
	if (getaddrinfo(node, service, &want, &list) != 0)
		return -FI_ENODATA;
	bool ok = exfi_addr_from(out, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return ok ? 0 : -FI_ENODATA;
}

// route returns the address that this host uses towards another one.
static bool route(const union address *to, union address *from)
{
	socklen_t len = sizeof(*from);
	union address probe = *to;
	if (probe.sa.sa_family == AF_INET && probe.in.sin_port == 0)
		probe.in.sin_port = htons(1);
	if (probe.sa.sa_family == AF_INET6 && probe.in6.sin6_port == 0)
		probe.in6.sin6_port = htons(1);
	memset(from, 0, sizeof(*from));
	int fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	bool ok = connect(fd, &probe.sa, exfi_addr_len(&probe)) == 0 && getsockname(fd, &from->sa, &len) == 0;
	close(fd);
	return ok;
}

static bool same_host(const union address *a, const union address *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)) == 0;
}

static bool wildcard(const union address *a)
{
	return a->sa.sa_family == AF_INET ? a->in.sin_addr.s_addr == htonl(INADDR_ANY) : IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

static in_port_t port_of(const union address *a)
{
	return a->sa.sa_family == AF_INET ? a->in.sin_port : a->in6.sin6_port;
}

// ends says which addresses the program has named.
static int ends(const char *node, const char *service, uint64_t flags, const struct fi_info *h, union address *from, union address *to)
{
	memset(from, 0, sizeof(*from));
	memset(to, 0, sizeof(*to));
	if (h != NULL && h->src_addr != NULL && !exfi_addr_from(from, h->src_addr, h->src_addrlen))
		return -FI_ENODATA;
	if (h != NULL && h->dest_addr != NULL && !exfi_addr_from(to, h->dest_addr, h->dest_addrlen))
		return -FI_ENODATA;
	if (node == NULL && service == NULL)
		return 0;
	// A service without a node is where to listen.
	bool source = (flags & FI_SOURCE) || node == NULL;
	return resolve(node, service, source, h, source ? from : to);
}

int exfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		 struct fi_info **out)
{
	struct device list[DEVICES];
	union address from, to, by;
	struct fi_info **last = out;
	*out = NULL;
	if (hints != NULL && hints->ep_attr != NULL && !ep_fits(hints->ep_attr))
		return -FI_ENODATA;
	size_t n = exfi_devices(list, DEVICES);
	if (n == 0) {
		INFO(CORE, "no node runs in this network namespace (exn-tun up), or it has no interface with an address\n");
		return -FI_ENODATA;
	}
	int r = ends(node, service, flags, hints, &from, &to);
	if (r != 0)
		return r;
	bool has_to = to.sa.sa_family != 0, has_from = from.sa.sa_family != 0 && !wildcard(&from);
	if (has_to && !has_from && !route(&to, &by))
		return -FI_ENODATA;
	for (size_t i = 0; i < n; i++) {
		union address at = list[i].address;
		if ((has_from && !same_host(&from, &at)) || (has_to && !has_from && !same_host(&by, &at)) ||
		    (has_to && to.sa.sa_family != at.sa.sa_family) || !fits(hints, &list[i]))
			continue;
		if (from.sa.sa_family != 0 && at.sa.sa_family == AF_INET)
			at.in.sin_port = port_of(&from);
		if (from.sa.sa_family != 0 && at.sa.sa_family == AF_INET6)
			at.in6.sin6_port = port_of(&from);
		if ((*last = describe(&list[i], version, hints, &at, has_to ? &to : NULL)) == NULL) {
			fi_freeinfo(*out);
			*out = NULL;
			return -FI_ENOMEM;
		}
		last = &(*last)->next;
	}
	return *out != NULL ? 0 : -FI_ENODATA;
}

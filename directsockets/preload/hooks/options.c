/* Options of sockets. docs/exn-run.md lists what each means for a direct connection. */
#include "hooks/dgram.h"
#include "hooks/hooks.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#ifndef TCP_AO_ADD_KEY
#define TCP_AO_ADD_KEY 38
#endif

/* SO_RCVTIMEO or SO_SNDTIMEO, by either name. */
static bool is_timeout(int name)
{
	return name == SO_RCVTIMEO_OLD || name == SO_RCVTIMEO_NEW || name == SO_SNDTIMEO_OLD || name == SO_SNDTIMEO_NEW;
}

static const struct timeval shortest = {0, 1}; /* the kernel makes it one of its ticks */

/* A timeout of fewer than 0 seconds. The kernel makes no waiting at all of it, but says 0 when it
 * is asked, as for ever. So that every process knows, the shortest one stands for it. */
static bool never_waits(const void *value, socklen_t len)
{
	struct timeval t;

	if (len < sizeof t || !ds_readable(value, sizeof t))
		return false;
	memcpy(&t, value, sizeof t);
	return t.tv_sec < 0 && t.tv_usec >= 0 && t.tv_usec < 1000000;
}

/* True for options that change what the bytes on the shadow mean, report on each of them, or bound
 * how fast they may go. docs/exn-run.md lists all options. */
static bool option_needs_tcp(int level, int name, const void *value, socklen_t len)
{
	if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE) { /* all bits: no bound */
		uint64_t rate = UINT64_MAX;

		len = len < sizeof rate ? len : (socklen_t)sizeof rate;
		if (ds_readable(value, len))
			memcpy(&rate, value, len);
		return rate != UINT64_MAX;
	}
	if (level == SOL_SOCKET)
		return name == SO_TIMESTAMPING || name == SO_PEEK_OFF || name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF;
	if (level == IPPROTO_TCP)
		return name == TCP_ULP || name == TCP_REPAIR || name == TCP_FASTOPEN_CONNECT || name == TCP_MD5SIG ||
		       name == TCP_MD5SIG_EXT || name == TCP_TX_DELAY || name == TCP_AO_ADD_KEY;
	return false;
}

/* True for options that a node has to know. */
static bool option_is_told(int level, int name)
{
	return (level == IPPROTO_IP && name == IP_TOS) || (level == IPPROTO_IPV6 && name == IPV6_TCLASS) ||
	       (level == IPPROTO_TCP && name == TCP_USER_TIMEOUT);
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (fd_kind(fd) == FD_CONN && option_needs_tcp(level, name, value, len)) {
		struct conn *c = conn_get(fd);
		if (c) {
			conn_demote(c, fd);
			conn_put(c);
		}
	}
	if (level == SOL_SOCKET && name == SO_LINGER && fd_kind(fd) == FD_CONN) {
		CALL_BY(k, fd, call_uncounted_any);
		if (k.c)
			return ds_linger_set(k.c->life.s, fd, value, len);
	}
	if (level == SOL_SOCKET && is_timeout(name) && fd_word(fd) && !word_dgram(fd_word(fd)) && never_waits(value, len)) {
		value = &shortest;
		len = sizeof shortest;
	}
	int rc = REAL(setsockopt, fd, level, name, value, len);
	struct ds_dgram *d = rc == 0 ? dgram_get(fd, fd_word(fd)) : NULL;
	if (d) {
		ds_dg_option(d, fd, level, name, value, len);
		ds_dg_put(d);
		return rc;
	}
	if (level == SOL_SOCKET && name == SO_ZEROCOPY)
		ds_zerocopy_used();
	if (level == SOL_SOCKET && fd_kind(fd) == FD_CONN && (is_timeout(name) || name == SO_RCVLOWAT || name == SO_OOBINLINE)) {
		CALL_BY(k, fd, call_uncounted_any);
		if (k.c)
			ds_options_set(k.c->life.s, fd);
		else if (k.early)
			ds_life_options(&k.early->life, fd);
	}
	if (rc == 0 && level == SOL_SOCKET && fd_kind(fd) == FD_CONN && (name == SO_SNDBUF || name == SO_SNDBUFFORCE)) {
		CALL_BY(k, fd, call_uncounted_any);
		if (k.c)
			ds_window_changed(k.c->life.s, fd);
	}
	if (rc == 0 && fd_kind(fd) == FD_CONN && option_is_told(level, name)) {
		CALL_BY(k, fd, call_uncounted_any);
		if (k.c)
			ds_node_changed(k.c->life.s, fd);
	}
	return rc;
}

/* Programs ask for SO_ERROR when their connect has completed, or when the connection has failed. */
EXPORT int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct conn *c = NULL;
	int rc;

	if (fd_kind(fd) == FD_CONN && ((level == SOL_SOCKET && (name == SO_ERROR || name == SO_LINGER)) || (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE)))
		c = level == SOL_SOCKET ? conn_peek(fd) : conn_get(fd);
	if (c) {
		if (name == SO_ERROR && level == SOL_SOCKET && conn_is(c) == CONN_CONNECTING)
			conn_completed(c, fd);
		else if (name == SO_ERROR && level == SOL_SOCKET && conn_is(c) == CONN_KNOWN)
			ds_look_at_peer(c->life.s, fd);
		else if (level == IPPROTO_TCP)
			conn_demote(c, fd);
	}
	rc = REAL(getsockopt, fd, level, name, value, len);
	if (c && rc == 0 && level == SOL_SOCKET && conn_is(c) == CONN_KNOWN) {
		if (name == SO_LINGER)
			ds_linger_get(c->life.s, value, *len);
		else if (*len >= sizeof(int))
			*(int *)value = ds_tell_error(c->life.s, *(int *)value);
	}
	if (c)
		conn_put(c);
	return rc;
}

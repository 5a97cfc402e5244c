// group.c: multicast groups. The node lists the members of a group; the port sends each of them
// its own copy, over its own flow.
#include <stdlib.h>
#include <time.h>

#include "group.h"
#include "node.h"

// How long a list of members is used, in ns, before the node is asked again. A member's port that
// opens later is found then.
enum { BELIEVED = 20 * 1000 * 1000 };

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void exn_group_free(struct exn_port *p)
{
	while (p->groups != NULL) {
		struct exn_group *g = p->groups;
		p->groups = g->next;
		free(g->members);
		free(g);
	}
}

void exn_group_drop(struct exn_port *p, const struct exn_grant *member)
{
	for (struct exn_group *g = p->groups; g != NULL; g = g->next) {
		unsigned kept = 0;
		for (unsigned i = 0; i < g->count; i++)
			if (g->members[i] != member)
				g->members[kept++] = g->members[i];
		g->count = kept;
	}
}

static bool add(struct exn_group *g, struct exn_grant *member)
{
	if (g->count == g->room) {
		unsigned room = g->room ? 2 * g->room : 8;
		void *list = realloc(g->members, room * sizeof(*g->members));
		if (list == NULL)
			return false;
		g->members = list;
		g->room = room;
	}
	g->members[g->count++] = member;
	return true;
}

// gather asks the node for the members and connects to those that have opened the VPID. It leaves
// the others out, as the hardware drops a message that no port receives.
static enum exn_status gather(struct exn_port *p, struct exn_group *g)
{
	uint64_t count = 1;
	g->count = 0;
	for (uint64_t i = 0; i < count; i++) {
		struct exn_msg m = {.op = EXN_MEMBER, .a = g->number, .b = i};
		struct exn_grant *member;
		int fds[EXN_FDS];
		enum exn_status s = exn_port_ask(p, &m, fds);
		exn_node_close(fds);
		if (s != EXN_OK)
			return s;
		g->nodes = count = m.a;
		if (i >= count)
			break;
		s = exn_port_connect(p, m.node, g->vpid, &member);
		if (s == EXN_NO_DAEMON || (s == EXN_OK && !add(g, member)))
			return s == EXN_OK ? EXN_NO_MEMORY : s;
	}
	g->asked = now_ns();
	return EXN_OK;
}

enum exn_status exn_port_group(struct exn_port *p, uint16_t number, uint16_t vpid, bool now, struct exn_group **out)
{
	struct exn_group *g = p->groups;
	while (g != NULL && (g->number != number || g->vpid != vpid))
		g = g->next;
	*out = g;
	if (g != NULL && !now && g->asked != 0 && now_ns() - g->asked < BELIEVED)
		return EXN_OK;
	if (g != NULL)
		return gather(p, g);
	if ((g = calloc(1, sizeof(*g))) == NULL)
		return EXN_NO_MEMORY;
	*g = (struct exn_group){.next = p->groups, .number = number, .vpid = vpid};
	*out = p->groups = g; // exn_group_drop finds it there
	enum exn_status s = gather(p, g);
	if (s != EXN_OK) {
		p->groups = g->next;
		free(g->members);
		free(g);
	}
	return s;
}

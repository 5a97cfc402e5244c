// limits.c: what programs are told when something is used up, or gone. limits full|node
#include "pair.h"

// full opens domains until the node has no port left for the user.
static void full(void)
{
	enum { MOST = 256 };
	static struct fid_domain *all[MOST];
	struct fi_info *info = offered();
	struct fid_fabric *fabric;
	int n = 0, r = 0;
	must(fi_prov_ini()->fabric(info->fabric_attr, &fabric, NULL) == 0);
	while (n < MOST && (r = fi_domain(fabric, info, &all[n], NULL)) == 0)
		n++;
	must(n > 0 && r == -FI_ENOSPC);
	must(fi_close(&all[--n]->fid) == 0);
	// The node takes a moment to hear of it.
	for (int i = 0; (r = fi_domain(fabric, info, &all[n], NULL)) != 0; i++) {
		must(r == -FI_ENOSPC && i < 60000);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	for (int i = 0; i <= n; i++)
		must(fi_close(&all[i]->fid) == 0);
	must(fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}

// node waits for the end of the node: everything ends with an error, and nothing waits.
static void node(void)
{
	struct side a, b;
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	static uint8_t into[100];
	ssize_t len;
	side_open(&a);
	side_open(&b);
	pair_connect(&a, &b);
	must(fi_recv(a.ep, into, sizeof(into), NULL, 0, into) == 0);
	puts("connected");
	fflush(stdout);
	must(fi_cq_sread(a.cq, &e, 1, NULL, 60000) == -FI_EAVAIL);
	must(failure(&a) == FI_ECONNABORTED);
	must(side_event(&a, &cm, sizeof(cm), &len) == FI_SHUTDOWN && cm.fid == &a.ep->fid);
	must(fi_send(a.ep, into, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
	must(fi_recv(a.ep, into, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
	must(fi_cq_sread(a.cq, &e, 1, NULL, 60000) == -FI_ENETDOWN);
	side_close(&a);
	side_close(&b);
}

int main(int argc, char **argv)
{
	must(argc == 2);
	if (strcmp(argv[1], "full") == 0)
		full();
	else
		node();
	puts("done");
	return 0;
}

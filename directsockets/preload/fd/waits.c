#include "fd/waits.h"

enum { MOST = sizeof((struct waits *)0)->calls / sizeof(struct call) };

bool waits_add(struct waits *w, int fd)
{
	uintptr_t word = fd_settled(fd);
	struct conn *c = word_conn(word);

	if (word_dgram(word))
		return !ds_dg_inward(word_dgram(word)) && ds_one_thread();
	if (!c || ds_life_plain(conn_is(c)))
		return word_epi(word) == NULL;
	if (w->n == MOST || conn_is(c) != CONN_UNCOUNTED)
		return false;
	struct call *k = &w->calls[w->n];
	*k = call_uncounted(fd, word, false);
	if (!k->early) {
		call_end(k);
		return false;
	}
	w->n++;
	return true;
}

bool waits_has(const struct waits *w, int fd)
{
	const struct conn *c = w ? word_conn(fd_word(fd)) : NULL;

	for (int i = 0; c && i < w->n; i++)
		if (w->calls[i].early == c)
			return true;
	return false;
}

void waits_end(struct waits *w)
{
	while (w->n > 0)
		call_end(&w->calls[--w->n]);
}

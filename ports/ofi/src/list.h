// list.h: lists whose links are in their elements.
#ifndef EXFI_LIST_H
#define EXFI_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_push(struct list *l, struct list *x)
{
	x->prev = l->prev;
	x->next = l;
	l->prev->next = x;
	l->prev = x;
}

// list_remove removes an element, which is a list of its own then.
static inline void list_remove(struct list *x)
{
	x->prev->next = x->next;
	x->next->prev = x->prev;
	list_init(x);
}

static inline struct list *list_pop(struct list *l)
{
	struct list *x = l->next;
	if (x == l)
		return NULL;
	list_remove(x);
	return x;
}

#endif

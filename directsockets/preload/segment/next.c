/* Looks functions up as dlsym(RTLD_NEXT) does, in a fifth of its instructions: a hundred of them,
 * in each program that is started. What is not plain is left to dlsym. */
#include "segment/real.h"

#include <dlfcn.h>

#ifdef __GLIBC__
#include <link.h>
#include <string.h>

enum { HIDDEN = 0x8000 }; /* of a version: not the default one */

/* What the dynamic section of a loaded object says; symbols is NULL if it has no table by GNU's
 * hash. */
struct object {
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Half) *versions;
	const uint32_t *hash;
};

/* An address of m's dynamic section, which the dynamic linker relocates where it may write. */
static const void *at(const struct link_map *m, const ElfW(Dyn) *d)
{
	return (const void *)(d->d_un.d_ptr < m->l_addr ? d->d_un.d_ptr + m->l_addr : d->d_un.d_ptr);
}

/* Reads m's dynamic section. No lock. */
static struct object object_of(const struct link_map *m)
{
	struct object o = {0};

	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_SYMTAB: o.symbols = at(m, d); break;
		case DT_STRTAB: o.names = at(m, d); break;
		case DT_VERSYM: o.versions = at(m, d); break;
		case DT_GNU_HASH: o.hash = at(m, d); break;
		}
	if (!o.hash || !o.names)
		o.symbols = NULL;
	return o;
}

/* The symbol of o that has this name, whose hash is h, in its default version; NULL: none. */
static const ElfW(Sym) *symbol(const struct object *o, const char *name, uint32_t h)
{
	enum { BITS = sizeof(ElfW(Addr)) * 8 };
	const uint32_t nbuckets = o->hash[0], first = o->hash[1], nbloom = o->hash[2], shift = o->hash[3];
	const ElfW(Addr) *bloom = (const void *)(o->hash + 4);
	const uint32_t *buckets = (const uint32_t *)(const void *)(bloom + nbloom), *chain = buckets + nbuckets;
	const ElfW(Addr) word = bloom[h / BITS & (nbloom - 1)];

	if (!(word >> h % BITS & word >> (h >> shift) % BITS & 1) || !nbuckets || buckets[h % nbuckets] < first)
		return NULL;
	for (uint32_t i = buckets[h % nbuckets];; i++) {
		const ElfW(Sym) *s = &o->symbols[i];

		if ((chain[i - first] | 1) == (h | 1) && s->st_shndx != SHN_UNDEF && s->st_value &&
		    !(o->versions && (o->versions[i] & HIDDEN || o->versions[i] == 0)) && !strcmp(o->names + s->st_name, name))
			return s;
		if (chain[i - first] & 1)
			return NULL;
	}
}

/* The first of the objects behind this library, in the order in which they were loaded and are
 * searched. */
static const struct link_map *behind(void)
{
	static struct link_map *own;
	struct link_map *m = __atomic_load_n(&own, __ATOMIC_ACQUIRE);
	Dl_info info;

	if (!m && dladdr1((const void *)(uintptr_t)&behind, &info, (void **)&m, RTLD_DL_LINKMAP))
		__atomic_store_n(&own, m, __ATOMIC_RELEASE);
	return m ? m->l_next : NULL;
}

/* The function, if all that must be known of it is in plain sight; else NULL. */
static void *look(const char *name)
{
	uint32_t h = 5381;

	for (const char *c = name; *c; c++)
		h = h * 33 + (unsigned char)*c;
	for (const struct link_map *m = behind(); m; m = m->l_next) {
		struct object o = object_of(m);

		if (!o.symbols)
			return NULL;
		const ElfW(Sym) *s = symbol(&o, name, h);
		if (s)
			return (s->st_info & 15) == STT_FUNC ? (void *)(m->l_addr + s->st_value) : NULL;
	}
	return NULL;
}
#else
/* The C library's own way is short. */
static void *look(const char *name)
{
	(void)name;
	return NULL;
}
#endif

const char *ds_own_path(void)
{
	static const char *path;
	const char *p = __atomic_load_n(&path, __ATOMIC_ACQUIRE);
	Dl_info info;

	if (!p) {
		p = dladdr((const void *)(uintptr_t)&ds_own_path, &info) && info.dli_fname[0] == '/' ? info.dli_fname : "";
		__atomic_store_n(&path, p, __ATOMIC_RELEASE);
	}
	return *p ? p : NULL;
}

void *ds_next(const char *name)
{
	void *f = look(name);

	return f ? f : dlsym(RTLD_NEXT, name);
}

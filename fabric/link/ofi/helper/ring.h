/*
 * ring.h: the memory that the helper shares with its node. See ../doc.go.
 *
 * Each counter has a cache line of its own, and one writer. A slot belongs to the node
 * from its count in *_done to its count in *_told, and to the helper otherwise.
 */
#ifndef OFI_RING_H
#define OFI_RING_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	RING_VERSION = 1,
	RING_SLOTS = 32,             /* in each direction */
	RING_SLOT = 72 * 1024,       /* bytes: a chunk of the stream link and its head */
	RING_DATA = 8192,            /* where the slots begin: those to be sent, then the others */
	RING_SIZE = RING_DATA + 2 * RING_SLOTS * RING_SLOT,
	RING_LINE = 128,
};

typedef struct {
	_Alignas(RING_LINE) _Atomic uint64_t word;
} ring_word;

typedef struct {
	ring_word tx_told;   /* node: messages to be sent */
	ring_word tx_done;   /* helper: of these, sent */
	ring_word rx_told;   /* helper: messages received */
	ring_word rx_done;   /* node: of these, taken */
	ring_word rx_posted; /* helper: receives given to the provider */
	ring_word sleeps;    /* 1: the helper wants to be woken; the node takes it back */
	ring_word rx_waits;  /* 1: the node wants to hear of messages; the helper takes it back */
	ring_word tx_waits;  /* 1: the node wants to hear of free slots; so too */
	ring_word wakes;     /* helper: how often it woke */
	_Alignas(RING_LINE) _Atomic uint32_t tx_len[RING_SLOTS];
	_Atomic uint32_t rx_len[RING_SLOTS];
} ring;

_Static_assert(sizeof(ring) <= RING_DATA, "the counters reach into the slots");

#endif

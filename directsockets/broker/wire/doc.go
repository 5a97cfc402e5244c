// Package wire defines the protocol of the broker of direct sockets: the messages between
// it and its clients, the page that all clients read, and the key of a connection. SPEC.md,
// section 6, is its normative text; testdata/messages.golden has a vector for each message,
// which the C library runs, too.
//
// # Architecture
//
//	client ── Message, up to 3 descriptors ──▶ broker     HELLO LISTEN UNLISTEN OFFER WITHDRAW CLAIM
//	client ◀── Message, up to 2 descriptors ── broker     WELCOME GRANT NONE REFUSED
//	client ◀┄┄ Page (shared, read only) ┄┄┄┄┄┄ broker     listeners by port, offers by Key.Bucket
//
// # Concurrency
//
// Values may be copied; Page documents its own rules.
//
// # Limits
//
// Little endian only. A message of another version is refused: both sides must be of
// one build.
//
// # Exports
//
// Half of the names are the types and the reasons of SPEC.md, section 6.
package wire

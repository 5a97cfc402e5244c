// Package wire has what a broker of direct sockets and its clients agree on: the messages
// between them, the page that all clients read, and the key of a connection. SPEC.md,
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
// Values may be copied; Page says what holds for it.
//
// # Limits
//
// Little endian. A message of another version is refused: both sides are of one build.
//
// # Exports
//
// Half of the names are the types and the reasons of SPEC.md, section 6.
package wire

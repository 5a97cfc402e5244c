// Package numbered makes and checks streams of bytes in which every word says where it belongs: to
// which connection, which direction of it, and which position. So a checker names what is wrong
// with the bytes that arrive: how many are missing, which came twice or too early, and from which
// other connection they are.
//
// # Architecture
//
//	Stream    one direction of a connection: fills buffers with its bytes
//	Checker   compares what arrives with a stream, and names the first difference, a Fault
//	Plan      what one connection does: bytes each way, sizes and pauses of calls, its end
//	Client    keeps a number of connections busy, each of which follows a Plan after the other
//	Server    does the server's part
//	Command   both as a program, with lines on standard output
//
// Folder c has the same program in C, for programs that nobody changes, and one whose streams go by
// VELO and RMA (librma2, libvelo2). They print the bytes that differ, and ParseFault names these.
//
// # A word
//
// It has 8 bytes, little endian:
//
//	bits 0 to 35    its number in the stream: its offset divided by 8
//	bits 36 to 55   the connection
//	bit 56          the direction: 1 from server to client
//	bits 57 to 63   a check of the others
//
// # Concurrency
//
// A Stream is a value. A Checker belongs to one goroutine. A Client and a Server do their own work
// in as many goroutines as they need.
//
// # Limits
//
// A stream has at most 512 GiB, and there are 2^20 connections. A checker stops at the first
// difference. It finds what came too early only within the next 256 bytes; further away, the bytes
// between are missing.
package numbered

// Package stream is the link between NICs of two hosts: one to four connections, made
// and authenticated by somebody else, that carry bytes in order.
//
// # Concurrency
//
// A Link's methods may be called from many goroutines.
package stream

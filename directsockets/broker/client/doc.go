// Package client is a program's side of the broker of direct sockets: it announces
// listeners, offers segments for connections, and claims those that are offered to it.
//
// # Architecture
//
//	Listen, Offer, Claim ─▶ Client ─▶ Way ─▶ broker
//	Listener, MayHaveOffer ─▶ wire.Page ◀┄┄┄ (memory that it shares)
//	refused, done ◀── handle ◀── GRANT, NONE, REFUSED
//
// Dial makes a Client that looks for the broker of its network namespace, and again whenever
// that dies. A broker in the same process makes an Attached one, which has no socket.
//
// # Concurrency
//
// All methods of Client may be called from many goroutines. Functions that it is given run on
// its own goroutine. Locks: Client.mu → packet.Outbox.mu.
//
// # Limits
//
// Nothing waits for the broker: what cannot be sent at once fails, and the connection stays on
// TCP.
package client

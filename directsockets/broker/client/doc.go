// Package client is a program's side of the broker of direct sockets: it announces
// listeners, offers segments for connections, and claims those that are offered to it.
//
// # Architecture
//
//	Listen, Offer, Claim ─▶ Client ─▶ Way ─▶ broker
//	Listener, MayHaveOffer ─▶ wire.Page ◀┄┄┄ (memory that it shares)
//	refused, done ◀── handle ◀── GRANT, NONE, REFUSED
//
// Dial makes a Client that finds the broker of its network namespace, and looks for the next
// one whenever that dies. A broker in the same process makes an Attached client, which has
// no socket.
//
// # Concurrency
//
// All methods of Client may be called from many goroutines. It calls back on its own
// goroutine. Locks: Client.mu → packet.Outbox.mu.
//
// # Limits
//
// Nothing waits for the broker: a request that cannot be sent at once fails, and the
// connection stays on TCP.
package client

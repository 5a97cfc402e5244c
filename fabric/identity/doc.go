// Package identity says who a node is to the nodes of other hosts, and whom it trusts:
// ed25519 keys, certificates that a fabric's authority has signed, and pinned keys.
//
// # Architecture
//
//	exn-tun key ──► Create, Sign ──► NAME.key (0600)   NAME.crt
//	                                    │                 │ "exnet://lab/node/7"
//	exn-tun up ──► Open ──► Store ◄─────┴─────────────────┘
//	                          │ ▲
//	                          │ └── trust file: certificates of authorities,
//	                          │     "node 2 SHA256:...", "deny SHA256:..."
//	                          ▼
//	             TLS: mutual, version 1.3 ──► PeerOf: fabric, node, fingerprint
//
// A certificate names the fabric and the node that it is for, as a URI; an
// authority's names the fabric alone. Trust.Verify believes a certificate if an
// authority of the trust file has signed it for the same fabric, or if the file has
// its key's fingerprint for the same node. What a host is called on the network plays
// no part.
//
// The fingerprint is the SHA-256 of the public key (its SubjectPublicKeyInfo) in the
// form of ssh-keygen.
//
// # Rotation
//
// A Store reads its files again when they have changed (Refresh). A new certificate
// serves the next handshake. A trust file may have several authorities, the old one
// and the new one, until all nodes have certificates of the new one. Who holds
// connections asks Check from time to time: it says when a certificate has expired, or is
// not trusted any more.
//
// # Concurrency
//
// A Store may be used from many goroutines. Everything else is a value.
//
// # Limits
//
// No revocation lists and no OCSP: "deny" lines, in the trust file of each node. Keys
// are ed25519, which the standard library makes, signs and verifies with.
package identity

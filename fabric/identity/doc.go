// Package identity authenticates nodes across hosts: ed25519 keys, certificates signed
// by a fabric's authority, and pinned keys.
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
// A certificate names its fabric and node, as a URI; an authority's names only the
// fabric. Trust.Verify believes a certificate if an authority of the trust file has
// signed it for the same fabric, or if the file has its key's fingerprint for the
// same node. Host names play no part.
//
// The fingerprint is the SHA-256 of the public key (its SubjectPublicKeyInfo) in the
// form of ssh-keygen.
//
// # Rotation
//
// A Store reads its files again when they have changed (Refresh). A new certificate
// serves the next handshake. A trust file may list both an old and a new authority until
// all nodes have certificates of the new one. A holder of connections calls Check from
// time to time: it says when a certificate has expired, or is no longer trusted.
//
// # Concurrency
//
// A Store may be used from many goroutines. Everything else is a value.
//
// # Limits
//
// There are no revocation lists and no OCSP, only "deny" lines in the trust file of
// each node. All keys are ed25519, as implemented by the standard library.
package identity

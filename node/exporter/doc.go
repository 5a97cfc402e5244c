// Package exporter serves metrics to Prometheus, over HTTP.
//
// # Architecture
//
//	who asks ──▶ newest (16 connections) ──▶ forThisHost ──▶ forHolders ──▶ scrapes (one page at a time) ──▶ collectors
//
// # Concurrency
//
// All methods may be called from many goroutines.
//
// # Limits
//
// All pages together take at most a quarter of a processor. There is no encryption: who sees the
// packets of a request has the token.
package exporter

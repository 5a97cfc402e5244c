// Package exporter serves metrics to Prometheus, over HTTP.
//
// # Architecture
//
//	who asks ──▶ newest (16 connections) ──▶ forThisHost ──▶ scrapes (one page at a time) ──▶ collectors
//
// # Concurrency
//
// All methods may be called from many goroutines.
//
// # Limits
//
// All pages together take at most a quarter of a processor. There is neither encryption nor a
// password.
package exporter

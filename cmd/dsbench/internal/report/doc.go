// Package report draws dsbench's measurements: a self-contained HTML page with figures, a
// sentence under each that says what it shows, and the data themselves.
//
// # Architecture
//
//	Data (rows of package result, in parts) ─► figures, summary ─► Render ─► page
//	  ▲ Decode                                                       │
//	  └───────────────────── JSON, also inside the page ◄────────────┘
//
// # Concurrency
//
// A Data belongs to one goroutine.
//
// # Limits
//
// It measures nothing. A part that was not measured has no figure.
package report

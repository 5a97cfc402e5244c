// Package report draws dsbench's measurements: a self-contained HTML page with figures, a
// sentence under each, generated from its data, and the data themselves.
//
// # Architecture
//
//	Data (rows of package result, in parts) ─► figures, sentences, summary ─► Render ─► page
//	  ▲ Decode                                                                  │
//	  └───────────────────── JSON, also inside the page ◄───────────────────────┘
//	Tuned (what "dsbench tune" found) ─► Page, Config
//
// # Concurrency
//
// A Data or Tuned belongs to one goroutine.
//
// # Limits
//
// It measures nothing. A part that was not measured has no figure and no sentence.
package report

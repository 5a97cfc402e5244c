// Package report draws what dsbench measured: an HTML page that stands alone, with figures,
// a sentence under each that is made from its data, and the data themselves.
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

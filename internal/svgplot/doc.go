// Package svgplot draws charts as SVG for an HTML page: lines over a number,
// and bars over names.
//
// # Architecture
//
//	Lines, Bars -> scale (linear or logarithmic, round ticks) -> SVG text
//
// The SVG is self-contained. Colours are CSS variables with a fallback, --plot-0
// to --plot-9 for the series and --plot-fg, --plot-grid, --plot-ref, so that a
// page may have a dark form, too. Series differ in colour and in the shape of
// their marks, so that they can be told apart in print. Every mark says its value
// when pointed at.
//
// A chart is 480 units wide with text of 12: readable on a telephone, and two
// beside each other on a desk.
//
// # Concurrency
//
// No state.
//
// # Limits
//
// The width of text is estimated, for the legend. Ten series have a colour each.
package svgplot

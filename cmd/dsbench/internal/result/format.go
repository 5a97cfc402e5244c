package result

import (
	"strings"

	"exnet/internal/display"
)

// TableWidth is the number of columns that all text for people keeps to.
const TableWidth = 100

// Optional writes a number as in a column; "-" for none.
func Optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return display.Figure(*v)
}

// Wrap writes text in lines of at most TableWidth columns.
func Wrap(b *strings.Builder, text string) {
	for _, line := range display.Wrap(text, TableWidth) {
		b.WriteString(line + "\n")
	}
}

// LastLine returns the last line of a program's output that says something: why it has failed.
func LastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

package result

import (
	"fmt"
	"strconv"
	"strings"
)

// TableWidth is the number of columns that all text for people keeps to.
const TableWidth = 100

// Figure writes a number with three digits, or all before the point.
func Figure(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func Optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return Figure(*v)
}

func Percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Wrap writes text in lines of at most tableWidth columns.
func Wrap(b *strings.Builder, text string) {
	width := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case width == 0:
		case width+1+n > TableWidth:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	b.WriteByte('\n')
}

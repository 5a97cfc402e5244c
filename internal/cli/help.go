package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"exnet/internal/display"
)

// docsAt says where the pages are that a help text names.
const docsAt = "docs/ is a folder of the source and of the tarball; a package has it in\n/usr/share/doc/exnet.\n"

// WithDocs adds to a help text that names pages in docs where they are.
func WithDocs(text string) string {
	if strings.Contains(text, "docs/") {
		text += "\n" + docsAt
	}
	return text
}

// Widths of the help, in columns.
const (
	helpWidth   = 80
	usageColumn = 23
)

// Flags explains the flags under their headings; those without one go under heading.
func Flags(fs *pflag.FlagSet, heading string) string {
	var order []string
	texts := make(map[string]*strings.Builder)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := heading
		if g := annotationOf(f, groupKey); g != "" {
			name = g
		}
		if texts[name] == nil {
			order = append(order, name)
			texts[name] = new(strings.Builder)
		}
		writeFlag(texts[name], f)
	})
	var b strings.Builder
	for _, name := range order {
		fmt.Fprintf(&b, "\n%s:\n%s", name, texts[name])
	}
	return b.String()
}

// FlagName returns a flag as the help writes it: "-s, --snaplen BYTES".
func FlagName(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if v := annotationOf(f, valueKey); v != "" {
		name += " " + v
	}
	return name
}

// writeFlag writes one flag: its name, and beside it what it does.
func writeFlag(b *strings.Builder, f *pflag.Flag) {
	name := "  " + FlagName(f)
	b.WriteString(name)
	column := utf8.RuneCountInString(name)
	if column > usageColumn-2 {
		b.WriteString("\n")
		column = 0
	}
	for _, line := range display.Wrap(f.Usage, helpWidth-usageColumn) {
		fmt.Fprintf(b, "%*s%s\n", usageColumn-column, "", line)
		column = 0
	}
}

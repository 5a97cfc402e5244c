package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Page is a man page (man(7)).
type Page struct {
	name string
	b    strings.Builder
}

// NewPage begins a page of section 1.
func NewPage(name, short string) *Page {
	p := &Page{name: name}
	fmt.Fprintf(&p.b, ".SH NAME\n%s \\- %s\n", escapeRoff(name), escapeRoff(short))
	return p
}

// Section adds a section with preformatted text, unless the text is empty.
func (p *Page) Section(title, text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Fprintf(&p.b, ".SH %s\n.nf\n%s\n.fi\n", title, escapeRoff(text))
	}
}

// Options adds a section that explains the flags.
func (p *Page) Options(fs *pflag.FlagSet) {
	p.b.WriteString(".SH OPTIONS\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			fmt.Fprintf(&p.b, ".TP\n.B %s\n%s\n", escapeRoff(FlagName(f)), escapeRoff(f.Usage))
		}
	})
}

// String returns the page.
func (p *Page) String(version string) string {
	if strings.Contains(p.b.String(), "docs/") {
		p.Section("FILES", docsAt)
	}
	return fmt.Sprintf(".TH %s 1 \"\" \"exnet %s\"\n", strings.ToUpper(escapeRoff(p.name)), escapeRoff(version)) + p.b.String()
}

// escapeRoff escapes what troff would interpret.
func escapeRoff(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\e`), "-", `\-`)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

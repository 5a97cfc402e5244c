package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"time"
)

// Dimensions of the drawing, in pixels, and times.
const (
	letter     = 7.8 // width of a character of 13 pixels, in most fonts
	lineHeight = 18
	margin     = 14
	perLetter  = 25 * time.Millisecond // of typing
	pause      = time.Second           // the longest that the drawing shows
	think      = 700 * time.Millisecond
)

const style = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c9d1d9;white-space:pre}
.c{fill:#f0f6fc;font-weight:600}.p{fill:#3fb950}.r{fill:#8b949e}
@keyframes show{from{opacity:0}}
@keyframes type{from{clip-path:inset(0 100% 0 0)}to{clip-path:inset(0 0 0 0)}}
.d{opacity:.4}.s{animation:show 1ms backwards}.t{animation:show 1ms backwards,type 1s backwards}
@media(prefers-reduced-motion){.s,.t{animation:none}}
`

// drawSteps returns the SVG. All lines are there from the beginning, dim; each becomes bright at
// its time, and stays.
func drawSteps(steps []step) []byte {
	var body, words bytes.Buffer
	var now time.Duration
	y, width := margin+lineHeight/2, 0
	line := func(class, style, content, plain string) {
		y += lineHeight
		width = max(width, len([]rune(plain)))
		if plain != "" {
			fmt.Fprintf(&body, "<text class=\"d\" x=\"%d\" y=\"%d\">%s</text>\n", margin, y, html.EscapeString(plain))
			fmt.Fprintf(&body, "<text class=\"%s\" style=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", class, style, margin, y, content)
		}
		fmt.Fprintln(&words, html.EscapeString(plain))
	}
	for _, s := range steps {
		typing := time.Duration(len(s.typed)) * perLetter
		kind, prompt := "c", "$ "
		if strings.HasPrefix(s.typed, "#") {
			kind, prompt = "r", ""
			y += lineHeight / 2
		}
		at := now.Milliseconds()
		line("t", fmt.Sprintf("animation-delay:%dms;animation-duration:1ms,%dms;animation-timing-function:linear,steps(%d)", at, typing.Milliseconds(), len(s.typed)+2),
			fmt.Sprintf(`<tspan class="p">%s</tspan><tspan class="%s">%s</tspan>`, prompt, kind, html.EscapeString(s.typed)), prompt+s.typed)
		now += typing
		var last time.Duration
		for _, o := range s.out {
			now += min(pause, max(0, o.at-last))
			last = o.at
			for _, part := range wrapLine(o.text) {
				line("s", fmt.Sprintf("animation-delay:%dms", now.Milliseconds()), html.EscapeString(part), part)
			}
		}
		now += think
	}
	w, h := int(float64(width)*letter)+2*margin, y+margin
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n", w, h, w, h)
	fmt.Fprintf(&b, "<title>A terminal session</title>\n<desc>\n%s</desc>\n<style>\n%s</style>\n", words.Bytes(), style)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", w, h)
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// wrapLine breaks a line as a terminal does.
func wrapLine(line string) (parts []string) {
	text := []rune(line)
	for len(text) > columns {
		parts = append(parts, string(text[:columns]))
		text = text[columns:]
	}
	return append(parts, string(text))
}

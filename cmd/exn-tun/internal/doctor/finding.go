package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"exnet/internal/display"
)

// Verdict is the result of a check. The zero value is invalid.
type Verdict uint8

// The verdicts.
const (
	OK   Verdict = 1 + iota
	Note         // works; could be better, or cannot be seen
	Warn         // works, but slowly or not for every user
	Fail         // something does not work
)

var verdictNames = [...]string{OK: "ok", Note: "note", Warn: "warn", Fail: "FAIL"}

// String returns the verdict's name.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) && v > 0 {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(strings.ToLower(v.String())), nil }

// Finding is the outcome of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Change  string  `json:"change,omitempty"` // what to change
	Why     string  `json:"why,omitempty"`
}

// Worst returns the worst verdict among findings.
func Worst(fs []Finding) Verdict {
	worst := OK
	for _, f := range fs {
		worst = max(worst, f.Verdict)
	}
	return worst
}

// Print writes findings as a table for people: a line each, and under those that are
// not ok what to change and why.
func Print(w io.Writer, fs []Finding) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fs {
		fmt.Fprintf(tw, "%v\t%s\t%s\n", f.Verdict, f.Check, f.Found)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, f := range fs {
		if f.Change == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s (%v)\n%s%s", f.Check, f.Verdict, wrapText("  change: ", f.Change), wrapText("  why:    ", f.Why)); err != nil {
			return err
		}
	}
	return nil
}

const width = 80

// wrapText folds text to lines of fewer than width columns, after a label.
func wrapText(label, text string) string {
	if text == "" {
		return ""
	}
	indent := "\n" + strings.Repeat(" ", len(label))
	return label + strings.Join(display.Wrap(text, width-1-len(label)), indent) + "\n"
}

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// LogFlags defines the flags of every command for its messages: log-format and log-level.
func LogFlags(fs *pflag.FlagSet, level string) {
	fs.Var(&choice{value: "text", words: []string{"text", "json"}}, "log-format", "`FORMAT` messages as text, or as JSON, an object a line (text)")
	fs.Var(&choice{value: "info", words: []string{"debug", "info", "warn", "error"}}, "log-level", "`LEVEL` "+level+": debug, info, warn or error (info)")
}

// Choices returns the words that a flag of LogFlags takes; nil: it is another one.
func Choices(f *pflag.Flag) []string {
	if c, ok := f.Value.(*choice); ok {
		return c.words
	}
	return nil
}

// choice is one of several words.
type choice struct {
	value string
	words []string
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return "choice" }

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if slices.Contains(c.words, s) {
		c.value = s
		return nil
	}
	return fmt.Errorf("%q: use %s", s, strings.Join(c.words, ", "))
}

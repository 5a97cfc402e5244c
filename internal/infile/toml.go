package infile

import (
	"fmt"
	"iter"
	"strings"
)

// tomlDepth bounds how deep the values of a TOML file are nested, and how many parts a key has.
const tomlDepth = 32

// CheckTOML returns an error, with the line, for text that package toml takes long or much memory
// for: it needs the square of how deep values are nested, and of how many parts a key has (16 kB
// took 36 s and 720 MB).
func CheckTOML(text string) error {
	line, depth, parts := 1, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			line, parts = line+1, 0
		case '#':
			i += lengthTo(text[i:], "\n", false) - 1 // the newline is counted next
		case '"', '\'':
			end := text[i : i+1]
			if strings.HasPrefix(text[i:], strings.Repeat(end, 3)) {
				end = strings.Repeat(end, 3)
			}
			body := text[i+len(end):]
			n := len(end) + lengthTo(body, end, c == '"') + len(end)
			n = min(n, len(text)-i)
			line += strings.Count(text[i:i+n], "\n")
			i += n - 1
		case '[', '{':
			depth, parts = depth+1, 0
		case ']', '}':
			depth, parts = depth-1, 0
		case '=', ',':
			parts = 0
		case '.':
			parts++
		}
		if depth > tomlDepth || parts > tomlDepth {
			return fmt.Errorf("line %d: more than %d values or parts of a key within each other", line, tomlDepth)
		}
	}
	return nil
}

// lengthTo returns how much of text is before end, all if it is not there. With escapes, a
// backslash takes the character after it along.
func lengthTo(text, end string, escapes bool) int {
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], end) {
			return i
		}
		if escapes && text[i] == '\\' {
			i++
		}
	}
	return len(text)
}

// TOMLKey is where a TOML file has a key, or begins a table. Package toml does not tell.
type TOMLKey struct {
	Table string // of the key; "": at the top
	Array bool   // the table is one of several: [[table]]
	Name  string // "": the table begins
	Line  int    // from 1
}

// TOMLKeys returns the keys of a file that package toml takes, in their order: those of which the
// line begins with the name. It does not look into inline tables.
func TOMLKeys(text string) iter.Seq[TOMLKey] {
	return func(yield func(TOMLKey) bool) {
		var at TOMLKey
		for line := range strings.Lines(text) {
			at.Line++
			line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
			line = strings.TrimSpace(line)
			key, _, isKey := strings.Cut(line, "=")
			header := strings.Trim(line, "[] ")
			switch {
			case isKey:
				at.Name = strings.Trim(strings.TrimSpace(key), `"'`)
			case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") && !strings.ContainsAny(header, `"',`):
				at.Table, at.Array, at.Name = header, strings.HasPrefix(line, "[["), ""
			default:
				continue
			}
			if !yield(at) {
				return
			}
		}
	}
}

package housetest

import (
	"bytes"
	"context"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"exnet/cmd/dsbench/bench"
	"exnet/cmd/exn-mem/exnmem"
	"exnet/cmd/exn-run/exnrun"
	"exnet/cmd/exn-sim/exnsim"
	"exnet/cmd/exn-tun/exntun"
)

// documented are the commands whose lines in the documents are checked.
var documented = map[string]func(args []string, out *bytes.Buffer) int{
	"exn-tun": func(args []string, out *bytes.Buffer) int { return exntun.Run(context.Background(), args, out, out) },
	"dsbench": func(args []string, out *bytes.Buffer) int {
		return bench.Run(context.Background(), args, out, out)
	},
	"exn-mem": func(args []string, out *bytes.Buffer) int { return exnmem.Run(context.Background(), args, out, out) },
	"exn-run": func(args []string, out *bytes.Buffer) int { return exnrun.Run(args, out, out) },
	"exn-sim": func(args []string, out *bytes.Buffer) int { return exnsim.Run(context.Background(), args, out, out) },
}

// separator is what may separate commands of a line.
var separator = regexp.MustCompile(` (?:\||\|\||&&|&|;|>|>>|2>|<) |[;&]$| &$|; |\)"?$`)

// What stands for one word.
var (
	substitution = regexp.MustCompile(`\$\([^()]*\)`)
	variable     = regexp.MustCompile(`\$\w+`)
	quoted       = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// before is what may stand before a command in a line of shell.
var before = regexp.MustCompile(`^(\$|#|!|if|then|else|while|until|do|sudo|exec|time|\w+=\S*)$`)

// ours returns a command's words without what stands before it; "go run ./cmd/X" is X.
func ours(words []string) []string {
	for len(words) > 0 && before.MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) > 2 && words[0] == "go" && words[1] == "run" {
		words = append([]string{path.Base(words[2])}, words[3:]...)
	}
	return words
}

// documentedLine is a command of ours, by words, with the number of its line.
type documentedLine struct {
	at    int
	words []string
}

// commandLines returns the commands of ours in the code blocks of a document.
func commandLines(text string) (lines []documentedLine) {
	fence, shell := false, false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if lang, ok := strings.CutPrefix(trimmed, "```"); ok {
			fence = !fence
			shell = fence && (lang == "" || lang == "sh")
			continue
		}
		indented := !fence && strings.HasPrefix(line, "    ")
		if !shell && !indented {
			continue
		}
		code, _, _ := strings.Cut(trimmed, " #")
		code = substitution.ReplaceAllString(code, "substituted")
		code = variable.ReplaceAllString(code, "1")
		code = quoted.ReplaceAllStringFunc(code, func(q string) string {
			return strings.Map(func(r rune) rune {
				if strings.ContainsRune(" ;&|<>", r) {
					return '_'
				}
				return r
			}, strings.Trim(q, `'"`)) + "_"
		})
		for _, part := range separator.Split(code+" ", -1) {
			part, _, _ = strings.Cut(strings.TrimSpace(part), "  ") // what is behind explains it
			words := strings.Fields(part)
			if words = ours(words); len(words) > 0 && documented[words[0]] != nil {
				lines = append(lines, documentedLine{i + 1, words})
			}
		}
	}
	return lines
}

// asked returns the arguments with a question for help where the command's own flags end, so
// that they are read, and nothing is done.
func asked(words []string) []string {
	args := slices.Clone(words[1:])
	at := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		at = i
	} else if words[0] == "exn-run" {
		takes := []string{"--node", "--rules", "--fabric", "--dir", "--report", "--library", "--check-rules", "--completion"}
		for i, a := range args {
			if !strings.HasPrefix(a, "-") && (i == 0 || !slices.Contains(takes, args[i-1])) {
				at = i
				break
			}
		}
	}
	return slices.Insert(args, at, "-h")
}

// The commands and flags that README and the documents show exist, and take the values shown.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, doc := range documents(t) {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			found++
			if out := wrong(line.words); out != "" {
				t.Errorf("%s:%d: %s: %s", filepath.Base(doc), line.at, strings.Join(line.words, " "), out)
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d commands found", found)
	}
}

// wrong says what is wrong with a command; "": nothing.
func wrong(words []string) string {
	if strings.ContainsAny(strings.Join(words, " "), "[|…") || slices.Contains(words, "...") {
		return "" // a form, not a command
	}
	var out bytes.Buffer
	if documented[words[0]](asked(words), &out) != 0 || !strings.Contains(out.String(), "Usage: ") {
		if text := out.String(); strings.Contains(text, "no such file or directory") || strings.Contains(text, ".toml: use torus:4x4x4") {
			return "" // a file of the reader's, which an option names
		}
		return out.String()
	}
	if words[0] != "exn-run" && len(words) > 1 && !strings.HasPrefix(words[1], "-") && !strings.Contains(out.String(), "Usage: "+words[0]+" "+words[1]) {
		return "unknown command " + words[1]
	}
	return ""
}

// A typo is found, wherever it is.
func TestDocumentedCommandsFindsTypos(t *testing.T) {
	for text, want := range map[string]string{
		"```sh\nexn-tun stauts\n```":                                "unknown command",
		"```\nexn-tun up --nets a &\n```":                           "no flag --nets",
		"    exn-run --lopback redis-server --port 1 &":             "no flag --lopback",
		"```sh\nexn-tun up --mtu 9 && dsbench stream\n```":          "not between",
		"```sh\nls | dsbench stream --path lo\n```":                 "no flag --path",
		"```sh\nexn-tun demo --serv 'x' -- iperf3 -c 10.2.0.2\n```": "no flag --serv",
		"```sh\ngo run ./cmd/exn-tun dmeo\n```":                     "unknown command",
		"```sh\nuntil A=b exn-tun stauts; do sleep 1; done\n```":    "unknown command",
		"```sh\nid\nsudo exn-tun up --nets a\n```":                  "no flag --nets",
	} {
		lines := commandLines(text)
		if len(lines) == 0 {
			t.Errorf("%q: no command found", text)
			continue
		}
		if got := wrong(lines[0].words); !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, good := range []string{"    exn-run --loopback redis-server --save '' &", "```sh\nexn-tun demo -- ping --nosuch\n```", "```go\nexn-tun stauts\n```"} {
		for _, line := range commandLines(good) {
			if got := wrong(line.words); got != "" {
				t.Errorf("%q: %s", good, got)
			}
		}
	}
}

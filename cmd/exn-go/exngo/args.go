package exngo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// boolFlags of the go command take no value in the next argument.
var boolFlags = strings.Fields(`a asan benchmem buildvcs c cover e export deps failfast find fullpath i json linkshared
	m modcacherw msan n race retracted short test trimpath u v versions work x artifacts compiled diff fix`)

// goCommand is a go command with the arguments that the user gave.
type goCommand struct {
	verb    string
	dir     string   // of -C; "": none
	args    []string // without -C, -overlay and -vet
	overlay string   // of -overlay; "": none
}

// parseCommand takes -C and -overlay from arguments of a go command.
func parseCommand(verb string, args []string) (goCommand, error) {
	c := goCommand{verb: verb}
	for i := 0; i < len(args); i++ {
		name, value, has := flagOf(args[i])
		if name == "" {
			if verb != "test" && verb != "vet" || args[i] == "--" { // test takes flags after packages
				c.args = append(c.args, args[i:]...)
				break
			}
			c.args = append(c.args, args[i])
			continue
		}
		if name == "args" {
			c.args = append(c.args, args[i:]...)
			break
		}
		own := args[i : i+1]
		if !has && !slices.Contains(boolFlags, strings.TrimPrefix(name, "test.")) {
			if i++; i == len(args) {
				c.args = append(c.args, own...) // the go command says what is missing
				break
			}
			own, value = args[i-1:i+1], args[i]
		}
		switch name {
		case "overlay":
			c.overlay = value
		case "C":
			c.dir = value
		case "vet": // see noVet
		default:
			c.args = append(c.args, own...)
		}
	}
	return c, nil
}

// flagOf splits -name=value. "": it is no flag.
func flagOf(arg string) (name, value string, has bool) {
	if len(arg) < 2 || arg[0] != '-' || arg == "--" {
		return "", "", false
	}
	return cutValue(strings.TrimPrefix(arg[1:], "-"))
}

func cutValue(text string) (name, value string, has bool) { return strings.Cut(text, "=") }

// flagInGOFLAGS is the value of a flag in GOFLAGS, whose entries may be quoted.
func flagInGOFLAGS(goflags, name string) string {
	value := ""
	for _, f := range splitQuoted(goflags) {
		if n, v, _ := flagOf(f); n == name {
			value = v
		}
	}
	return value
}

// splitQuoted splits at blanks; an entry may be in single or double quotes.
func splitQuoted(text string) (fields []string) {
	for {
		text = strings.TrimLeft(text, " \t\n\r")
		if text == "" {
			return fields
		}
		if q := text[0]; q == '\'' || q == '"' {
			field, rest, _ := strings.Cut(text[1:], string(q))
			fields, text = append(fields, field), rest
			continue
		}
		end := strings.IndexAny(text, " \t\n\r")
		if end < 0 {
			end = len(text)
		}
		fields, text = append(fields, text[:end]), text[end:]
	}
}

// quoteFlag is an entry for GOFLAGS.
func quoteFlag(flag string) (string, error) {
	switch {
	case !strings.ContainsAny(flag, " \t\n\r'\""):
		return flag, nil
	case !strings.Contains(flag, "'"):
		return "'" + flag + "'", nil
	case !strings.Contains(flag, `"`):
		return `"` + flag + `"`, nil
	}
	return "", fmt.Errorf("%s has both kinds of quotes, which GOFLAGS cannot hold", flag)
}

// readOverlay reads the user's overlay, whose names are relative to dir.
func readOverlay(file, dir string) (o overlay, err error) {
	if file == "" {
		return o, nil
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return o, err
	}
	text, err := os.ReadFile(joinDir(dir, file))
	if err != nil {
		return o, fmt.Errorf("-overlay: %w", err)
	}
	var own overlay
	if err := json.Unmarshal(text, &own); err != nil {
		return o, fmt.Errorf("-overlay: %s: %w", file, err)
	}
	o.Replace = make(map[string]string)
	for from, to := range own.Replace {
		if to != "" {
			to = joinDir(dir, to)
		}
		o.Replace[joinDir(dir, from)] = to
	}
	return o, nil
}

// joinDir is name, in dir if it is relative.
func joinDir(dir, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

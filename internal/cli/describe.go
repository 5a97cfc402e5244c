package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Description describes a command that has no subcommands and does not use cobra.
type Description struct {
	Name, Short string
	Usage       string // lines
	Long        string
	Examples    string
	End         string // what comes at the end
	Flags       *pflag.FlagSet
	Version     string
	// Values has, by flag, a command of the shell that prints what may follow, a line each. It has
	// no colon, and no single quote.
	Values map[string]string
}

// Help returns what -h prints.
func (d Description) Help() string {
	Tidy(d.Flags)
	return WithDocs(fmt.Sprintf("Usage: %s\n\n%s\n\nExamples:\n%s\n%s\n%s\n", strings.ReplaceAll(d.Usage, "\n", "\n       "), d.Long,
		"  "+strings.ReplaceAll(d.Examples, "\n", "\n  "), Flags(d.Flags, "Flags"), d.End))
}

// Man returns the man page.
func (d Description) Man() string {
	Tidy(d.Flags)
	p := NewPage(d.Name, d.Short)
	p.Section("SYNOPSIS", d.Usage)
	p.Section("DESCRIPTION", d.Long)
	p.Section("EXAMPLES", d.Examples)
	p.Options(d.Flags)
	p.Section("NOTES", d.End)
	return p.String(d.Version)
}

// Completion returns a script that completes flags, and after them a command with its own
// arguments, in a shell.
func (d Description) Completion(shell string) (string, error) {
	Tidy(d.Flags)
	switch shell {
	case "bash":
		return d.bash(), nil
	case "fish":
		return d.fish(), nil
	case "zsh":
		return d.zsh(), nil
	}
	return "", Usagef("there are no completions for %q: name bash, fish or zsh", shell)
}

// eachFlag calls f for every flag, with whether it takes a value, and whether that is a file.
func (d Description) eachFlag(f func(flag *pflag.Flag, value, file bool)) {
	d.Flags.VisitAll(func(flag *pflag.Flag) {
		name := annotationOf(flag, valueKey)
		f(flag, name != "", name == "FILE" || name == "DIR")
	})
}

// valueSource returns what prints the values that a flag may have, or "".
func (d Description) valueSource(f *pflag.Flag) string {
	if c := Choices(f); len(c) > 0 {
		return "printf \"%s\\n\" " + strings.Join(c, " ")
	}
	return d.Values[f.Name]
}

func (d Description) bash() string {
	var flags, values, files []string
	var known strings.Builder
	d.eachFlag(func(f *pflag.Flag, value, file bool) {
		flags = append(flags, "--"+f.Name)
		if file {
			files = append(files, "--"+f.Name)
		} else if value {
			values = append(values, "--"+f.Name)
		}
		if v := d.valueSource(f); v != "" {
			fmt.Fprintf(&known, "	--%s) COMPREPLY=($(compgen -W \"$(%s 2>/dev/null)\" -- \"${COMP_WORDS[COMP_CWORD]}\")); return ;;\n", f.Name, v)
		}
	})
	function := "_" + strings.ReplaceAll(d.Name, "-", "_")
	return fmt.Sprintf(`# bash completion for %[1]s
%[2]s() {
	local i word
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		--) _command_offset $((i + 1)); return ;;
		%[3]s|%[4]s) ((i++)) ;;
		-*) ;;
		*) _command_offset "$i"; return ;;
		esac
	done
	case ${COMP_WORDS[COMP_CWORD-1]} in
%[6]s	%[3]s) COMPREPLY=(); return ;;
	%[4]s) COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")); return ;;
	esac
	if [[ ${COMP_WORDS[COMP_CWORD]} == -* ]]; then
		COMPREPLY=($(compgen -W '%[5]s' -- "${COMP_WORDS[COMP_CWORD]}"))
	else
		COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
	fi
}
complete -F %[2]s %[1]s
`, d.Name, function, strings.Join(values, "|"), strings.Join(files, "|"), strings.Join(flags, " "), known.String())
}

func (d Description) fish() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %s\ncomplete -c %[1]s -f -a '(__fish_complete_subcommand)'\n", d.Name)
	d.eachFlag(func(f *pflag.Flag, value, file bool) {
		kind := ""
		if file {
			kind = " -r -F"
		} else if value {
			kind = " -x"
		}
		if v := d.valueSource(f); v != "" {
			kind += " -a '(" + v + " 2>/dev/null)'"
		}
		fmt.Fprintf(&b, "complete -c %s -l %s%s -d '%s'\n", d.Name, f.Name, kind, strings.ReplaceAll(f.Usage, "'", `\'`))
	})
	return b.String()
}

func (d Description) zsh() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n_arguments -S \\\n", d.Name)
	d.eachFlag(func(f *pflag.Flag, value, file bool) {
		usage := strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(f.Usage)
		kind := ""
		if file {
			kind = ":file:_files"
		} else if value {
			kind = ":value:"
		}
		if v := d.valueSource(f); v != "" {
			kind += "{compadd -- $(" + v + " 2>/dev/null)}"
		}
		fmt.Fprintf(&b, "  '--%s[%s]%s' \\\n", f.Name, usage, kind)
	})
	b.WriteString("  '(-):command:_command_names -e' \\\n  '*::arguments:_normal'\n")
	return b.String()
}

package exnrun

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/preload"
	"exnet/internal/rules"
)

// Variables of the library. What exn-run does not set stays as the caller has it.
const (
	envPreload  = "LD_PRELOAD"
	envRules    = "EXNET_RULES"
	envLoopback = "EXNET_LOOPBACK"
	envExplain  = "EXNET_EXPLAIN"
	envASan     = "ASAN_OPTIONS"
	envLauncher = "EXNET_LAUNCHER"
)

// asanOptions returns the options of the address sanitizer, so that it accepts a library before
// itself: else a program that is built with it does not start.
func asanOptions(list string) string {
	const option = "verify_asan_link_order"
	if strings.Contains(list, option) { // the user's word counts
		return list
	}
	return strings.TrimPrefix(list+":"+option+"=0", ":")
}

// tunables are the variables that hold a number, and from where to where.
var tunables = []struct {
	name      string
	low, high uint64
	power     bool // of two
}{
	{"EXNET_DS_RING", 64 << 10, 1 << 30, false},
	{"EXNET_DS_SLOTS", 16, 4096, true},
	{"EXNET_DS_MAX_RING", 0, 1 << 30, false},
	{"EXNET_DS_MAX_SLOTS", 0, 4096, false},
	{"EXNET_CLASS", 0, 63, false},
	{envLoopback, 0, 1, false},
	{"EXNET_PATCH", 0, 1, false},
}

// missetVariables says which variables the library passes over, since they hold no value that it
// knows.
func missetVariables(get func(name string) string) (list []string) {
	for _, v := range tunables {
		text := get(v.name)
		n, err := strconv.ParseUint(text, 10, 64)
		if text == "" || err == nil && n >= v.low && n <= v.high && (!v.power || n&(n-1) == 0) {
			continue
		}
		numbers := "a number"
		if v.power {
			numbers = "a power of two"
		}
		values := fmt.Sprintf("%s from %d to %d", numbers, v.low, v.high)
		if v.low == 0 && v.high == 1 {
			values = "0 or 1"
		}
		list = append(list, fmt.Sprintf("%s=%s has no effect: use %s", v.name, text, values))
	}
	return list
}

// settings are what goes into the program's environment.
type settings struct {
	library  string // "": the program cannot bear LD_PRELOAD
	rules    rules.Rules
	hasRules bool // rules may be none
	loopback bool
	inherits bool   // EXNET_LOOPBACK is set already
	tap      string // "": there is none
	explain  bool   // the library tells the broker of every socket
	launcher string // exn-run's path, for static programs that the program starts; "": not known
}

// environVariables returns the settings as NAME=VALUE. get returns the variables as they were.
func (s settings) environVariables(get func(name string) string) ([]string, error) {
	var vars []string
	if s.library != "" {
		if strings.ContainsAny(s.library, " \t\n:") {
			return nil, fmt.Errorf("the library's path %q has a blank or a colon, which LD_PRELOAD cannot hold: use --library with another path", s.library)
		}
		vars = append(vars, envPreload+"="+preload.Prepend(s.library, get(envPreload)), envASan+"="+asanOptions(get(envASan)))
	}
	if s.hasRules {
		text := s.rules.Compile()
		if len(text) > rules.MaxCompiled {
			return nil, fmt.Errorf("%w: %d rules do not fit the environment: remove some", rules.ErrRules, len(s.rules))
		}
		vars = append(vars, envRules+"="+text)
	}
	switch {
	case s.loopback:
		vars = append(vars, envLoopback+"=1")
	case !s.inherits: // a program that exn-go built is plain if none of the variables is set
		vars = append(vars, envLoopback+"=0")
	}
	if s.tap != "" {
		vars = append(vars, client.TapEnv+"="+s.tap)
	}
	if s.launcher != "" && s.library != "" {
		vars = append(vars, envLauncher+"="+s.launcher)
	}
	if s.explain {
		vars = append(vars, envExplain+"=1")
	}
	return vars, nil
}

// withVariables returns the environment with variables set.
func withVariables(environ, vars []string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	return append(environ, vars...)
}

// shellWord quotes a word for a POSIX shell.
func shellWord(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/._-:=", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

package suites

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// scriptScenarios are the scripts of testdata/programs, a program each: what it serves and what is
// checked is a few commands. They are all for -full or by name. lib.sh has what they share.
func scriptScenarios() []scenario {
	names, _ := filepath.Glob("testdata/programs/*.sh") // the pattern is right
	var all []scenario
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && filepath.Base(name) != "lib.sh" {
			all = append(all, scriptScenario(strings.TrimSuffix(filepath.Base(name), ".sh"), string(text)))
		}
	}
	return all
}

var scriptField = regexp.MustCompile(`(?m)^# (needs|port|tcp): (.*)$`)

// scriptScenario is a script's. At its top it says "# needs: PROGRAM=PACKAGE ...", "# port: " and
// the port upon which to wait, if it is not frontPort, and "# tcp: " and why nothing may be direct.
// It has the functions serve, check, and perhaps load.
func scriptScenario(name, text string) scenario {
	sc := scenario{name: name, long: true, needs: map[string]string{}}
	port := frontPort
	for _, m := range scriptField.FindAllStringSubmatch(text, -1) {
		switch m[1] {
		case "needs":
			for field := range strings.FieldsSeq(m[2]) {
				program, pkg, _ := strings.Cut(field, "=")
				sc.needs[program] = pkg
			}
		case "port":
			port, _ = strconv.Atoi(m[2]) // 0: it does not listen
		case "tcp":
			sc.tcp = m[2]
		}
	}
	argv := func(s *stage, function string) []string {
		for _, pattern := range []string{"lib.sh", name + ".*", "mpi.c"} {
			names, _ := filepath.Glob("testdata/programs/" + pattern) // the pattern is right
			for _, name := range names {
				s.script("programs/" + filepath.Base(name))
			}
		}
		s.script("echo.py")
		return []string{"bash", s.path("programs/" + name + ".sh"), function,
			strconv.Itoa(frontPort), strconv.Itoa(backPort), strconv.Itoa(otherPort), strconv.Itoa(size(1, 8))}
	}
	sc.serve = func(s *stage) {
		if port != 0 {
			s.server(port, argv(s, "serve")...)
		}
	}
	sc.check = func(s *stage) { s.do(argv(s, "check")...) }
	if strings.Contains(text, "\nload() {") {
		sc.load = func(s *stage) { s.do(argv(s, "load")...) }
	}
	return sc
}

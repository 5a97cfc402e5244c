package suites

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exnet/internal/longtest"
)

// set notes the verdict of a test. One of several of the same name that fails counts.
func set(all map[string]verdict, test string, v verdict) {
	if all[test] != failed {
		all[test] = v
	}
}

var tapLine = regexp.MustCompile(`(?m)^(not )?ok (\d+)(?: - ([^#\n]*)| *)(# *(?i:skip|todo)[^\n]*)?$`)

// parseTAP reads the Test Anything Protocol. A test that is to do may fail.
func parseTAP(_ unit, out string, _ int) map[string]verdict {
	all := make(map[string]verdict)
	for _, m := range tapLine.FindAllStringSubmatch(out, -1) {
		v, name := passed, m[2]+" "+strings.TrimSpace(m[3])
		switch {
		case m[4] != "":
			v = skipped
		case m[1] != "":
			v = failed
		}
		set(all, name, v)
	}
	return all
}

var skipLine = regexp.MustCompile(`(?m)^1\.\.0 # Skipped|\(1 skipped\)|: (?:SKIPPED|DISABLED)$`)

// parseExit takes the exit status for the verdict of the unit, its only test.
func parseExit(u unit, out string, status int) map[string]verdict {
	switch {
	case status != 0:
		return map[string]verdict{u.name: failed}
	case skipLine.MatchString(out):
		return map[string]verdict{u.name: skipped}
	}
	return map[string]verdict{u.name: passed}
}

var ltpFail = regexp.MustCompile(`(?m)^(\w+\.[ch]:\d+): (?:TFAIL|TBROK): `)

// ltpSkipped is TCONF of LTP's exit status: the test does not apply here.
const ltpSkipped = 32

// parseLTP takes the exit status for the verdict, and the places that say that they failed for
// tests.
func parseLTP(u unit, out string, status int) map[string]verdict {
	all := map[string]verdict{u.name: passed}
	switch {
	case status == ltpSkipped:
		all[u.name] = skipped
	case status != 0:
		all[u.name] = failed
	}
	for _, m := range ltpFail.FindAllStringSubmatch(out, -1) {
		all[m[1]] = failed
	}
	return all
}

var (
	colour    = regexp.MustCompile("\x1b\\[[0-9;]*m")
	redisLine = regexp.MustCompile(`(?m)^\[(ok|err|exception|skip|ignore|timeout|TIMEOUT)\]: (.*?)(?: \(\d+ ms\)| in tests/\S+)?$`)
)

func parseRedis(_ unit, out string, _ int) map[string]verdict {
	all := make(map[string]verdict)
	for _, m := range redisLine.FindAllStringSubmatch(colour.ReplaceAllString(out, ""), -1) {
		switch m[1] {
		case "ok":
			set(all, m[2], passed)
		case "skip", "ignore":
			set(all, m[2], skipped)
		default:
			set(all, m[2], failed)
		}
	}
	return all
}

var (
	pythonLine = regexp.MustCompile(`(?m)^(\w+) \(([\w.]+)\)(?:\n[^\n]*)? \.\.\. (ok|skipped)?`)
	pythonFail = regexp.MustCompile(`(?m)^(?:FAIL|ERROR): (\w+) \(([\w.]+)\)`)
)

// parseCPython reads what "python3 -m test -v" wrote. What tests write is in between, so only what
// failed is sure.
func parseCPython(_ unit, out string, _ int) map[string]verdict {
	all := make(map[string]verdict)
	for _, m := range pythonLine.FindAllStringSubmatch(out, -1) {
		if m[3] == "skipped" {
			set(all, m[2], skipped)
		} else {
			set(all, m[2], passed)
		}
	}
	for _, m := range pythonFail.FindAllStringSubmatch(out, -1) {
		set(all, m[2], failed)
	}
	return all
}

var (
	rubyLine = regexp.MustCompile(`(?m)^\[ *\d+/\d+\] (\S+#\S+) = [\d.]+ s`)
	rubyFail = regexp.MustCompile(`(?m)^ +\d+\) (Failure|Error|Timeout|Skipped):\n(\S+#[^\s:\[]+)`)
)

func parseRuby(_ unit, out string, _ int) map[string]verdict {
	all := make(map[string]verdict)
	for _, m := range rubyLine.FindAllStringSubmatch(out, -1) {
		set(all, m[1], passed)
	}
	for _, m := range rubyFail.FindAllStringSubmatch(out, -1) {
		if m[1] == "Skipped" {
			set(all, m[2], skipped)
		} else {
			set(all, m[2], failed)
		}
	}
	return all
}

var (
	curlLine = regexp.MustCompile(`(?m)^test (\d{4}) ?(SKIPPED)?`)
	curlFail = regexp.MustCompile(`(?m)^TESTFAIL: These test cases failed: (.*)$`)
)

func parseCurl(_ unit, out string, _ int) map[string]verdict {
	all := make(map[string]verdict)
	for _, m := range curlLine.FindAllStringSubmatch(out, -1) {
		if m[2] != "" {
			set(all, m[1], skipped)
		} else {
			set(all, m[1], passed)
		}
	}
	for _, m := range curlFail.FindAllStringSubmatch(out, -1) {
		for n := range strings.FieldsSeq(m[1]) {
			var number int
			if _, err := fmt.Sscan(n, &number); err == nil {
				set(all, fmt.Sprintf("%04d", number), failed)
			}
		}
	}
	return all
}

// What the runners write, and what is read of it.
func TestParse(t *testing.T) {
	longtest.Skip(t)
	u := unit{name: "it"}
	for _, tt := range []struct {
		name   string
		parse  func(unit, string, int) map[string]verdict
		out    string
		status int
		want   map[string]verdict
	}{
		{"TAP", parseTAP, "1..4\nok 1 - a b\nnot ok 2 - c\n# because\nnot ok 3 - d # TODO later\nok 4 # skip no e\n", 1,
			map[string]verdict{"1 a b": passed, "2 c": failed, "3 d": skipped, "4 ": skipped}},
		{"exit", parseExit, "", 0, map[string]verdict{"it": passed}},
		{"exit, skipped", parseExit, "1..0 # Skipped: no crypto\n", 0, map[string]verdict{"it": skipped}},
		{"exit, failed", parseExit, "", -1, map[string]verdict{"it": failed}},
		{"LTP", parseLTP, "it.c:50: TPASS: good\nit.c:66: TFAIL: bad\n", 1, map[string]verdict{"it": failed, "it.c:66": failed}},
		{"LTP, skipped", parseLTP, "it.c:50: TCONF: no\n", 32, map[string]verdict{"it": skipped}},
		{"redis", parseRedis, "[\x1b[0;32;49mok\x1b[0m]: SET and GET (12 ms)\n[\x1b[0;31;49merr\x1b[0m]: WATCH in tests/unit/multi.tcl\n[skip]: large\n", 1,
			map[string]verdict{"SET and GET": passed, "WATCH": failed, "large": skipped}},
		{"CPython", parseCPython, "testA (t.X.testA) ... ok\ntestB (t.X.testB)\nAbout B. ... FAIL\ntestC (t.Y.testC) ... skipped 'no'\n\n=====\nFAIL: testB (t.X.testB)\n", 2,
			map[string]verdict{"t.X.testA": passed, "t.X.testB": failed, "t.Y.testC": skipped}},
		{"Ruby", parseRuby, "[1/2] A#test_x = 0.01 s\n[2/2] A#test_y = 0.02 s\n\n  1) Failure:\nA#test_y [/x.rb:3]:\nbad\n", 1,
			map[string]verdict{"A#test_x": passed, "A#test_y": failed}},
		{"curl", parseCurl, "test 0001 [HTTP GET]\n--pd---e--- OK (1 out of 3)\ntest 0002 [x]\n data FAILED:\ntest 0003 SKIPPED: no\nTESTFAIL: These test cases failed: 2 \n", 1,
			map[string]verdict{"0001": passed, "0002": failed, "0003": skipped}},
	} {
		if diff := cmp.Diff(tt.want, tt.parse(u, tt.out, tt.status)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Both layouts of Redis's tests: named one by one, and folders of which all files are tests.
func TestRedisNames(t *testing.T) {
	longtest.Skip(t)
	for _, tt := range []struct{ name, helper string }{
		{"names", "set ::all_tests {\n    unit/auth\n    unit/type/list\n}\n# Index\nset ::next_test 0\n"},
		{"folders", "set ::all_tests []\nset test_dirs {\n    unit\n    unit/type\n}\nforeach test_dir $test_dirs {\n    lappend ::all_tests\n}\n"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"test_helper.tcl": tt.helper, "unit/auth.tcl": "", "unit/type/list.tcl": "", "unit/moduleapi/aof.tcl": ""} {
			path := filepath.Join(dir, "tests", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := redisNames(dir)
		if diff := cmp.Diff([]string{"unit/auth", "unit/type/list"}, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}

// A test that fails in a mode and not plain is a difference; one that fails in both is none.
func TestDiffering(t *testing.T) {
	longtest.Skip(t)
	of := func(all map[string]verdict) result { return result{verdicts: all} }
	without := of(map[string]verdict{"a": passed, "b": failed, "c": passed})
	for _, tt := range []struct {
		with map[string]verdict
		want []string
	}{
		{map[string]verdict{"a": passed, "b": failed, "c": passed}, nil},
		{map[string]verdict{"a": failed, "b": failed, "c": passed}, []string{"a"}},
		{map[string]verdict{"a": passed, theHang: failed}, []string{theHang}},
		{map[string]verdict{"a": passed, "b": failed}, []string{fewer}},
		{map[string]verdict{"b": failed, "a": passed, "c": passed, "d": failed}, []string{"d"}},
	} {
		var got []string
		for _, d := range differing(unit{name: "u"}, normal, of(tt.with), without) {
			got = append(got, d.Test)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.with, diff)
		}
	}
	for _, tt := range []struct {
		d    difference
		want string
	}{
		{difference{Runs: 5, Fails: 5}, "differs"},
		{difference{Runs: 5, Fails: 1}, "differs at times"},
		{difference{Runs: 5, Fails: 2, Plain: 1}, "flaky"},
		{difference{Runs: 5}, "failed once"},
		{difference{About: "documented"}, "explained"},
	} {
		if got := tt.d.kind(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.d, got, tt.want)
		}
	}
}

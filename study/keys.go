package study

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/fabric/pattern"
	"exnet/fabric/routing"
	"exnet/study/storage"
)

// keyInfo is a key of a scenario.
type keyInfo struct {
	name    string
	initial any // nil: it must be given
	check   func(any) (any, error)
	// decides: what depends on it is not checked while it is wrong itself.
	decides bool
}

var machineKeys = []keyInfo{
	{"name", "", textValue, false},
	{"topology", nil, textValue, true},
	{"cores", int64(0), wholeNumber(1, 1<<16), true},
	{"seed", int64(1), wholeNumber(0, math.MaxInt64), false},
	{"scheduler", "fcfs", oneOfTexts(Schedulers), false},
	{"selector", "linear", oneOfTexts(Selectors), false},
	{"placement", "block", oneOfTexts(Placements), false},
	{"router", "tables", oneOfTexts(routing.Names), false},
}

var jobKeys = []keyInfo{
	{"name", "", textValue, false},
	{"pattern", nil, patternName, true},
	{"ranks", int64(0), wholeNumber(1, pattern.MaxRanks), true},
	{"bytes", uint64(1 << 20), sizeValue, false},
	{"class", "C", takeClass, false},
	{"flows", int64(0), wholeNumber(1, 1<<26), true},
	{"submit", "0s", takeSubmit, false},
	{"duration", time.Duration(0), takeDuration, false},
	{"count", int64(1), wholeNumber(1, 100_000), false},
	{"target", "random", oneOfTexts(storage.Selectors), false},
}

var storageKeys = []keyInfo{
	{"routers", nil, wholeNumber(1, storage.MaxParts), true},
	{"groups", nil, wholeNumber(1, storage.MaxParts), true},
	{"servers", nil, wholeNumber(1, storage.MaxParts), true},
	{"targets", nil, wholeNumber(1, storage.MaxParts), true},
}

func keyNames(keys []keyInfo) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return strings.Join(names, ", ")
}

func textValue(v any) (any, error) {
	s, ok := v.(string)
	if !ok || s == "" {
		return nil, fmt.Errorf("%v is not a quoted string", v)
	}
	return s, nil
}

// write is the pattern of a job whose ranks write to the storage.
const write = "write"

// patternName takes the name of a pattern, or of a file.
func patternName(v any) (any, error) {
	if s, ok := v.(string); ok && isFile(s) {
		return s, nil
	}
	v, err := oneOfTexts(append(pattern.Names(), write))(v)
	if err != nil {
		err = fmt.Errorf("%w; a file's name has a dot or a slash", err)
	}
	return v, err
}

// isFile reports whether a pattern is a file's: its name looks like one.
func isFile(name string) bool { return strings.ContainsAny(name, "./") }

// takeClass takes a class of the NAS Parallel Benchmarks.
func takeClass(v any) (any, error) { return oneOfTexts(strings.Split(pattern.Classes, ""))(v) }

func oneOfTexts(of []string) func(any) (any, error) {
	return func(v any) (any, error) {
		s, ok := v.(string)
		if !ok || !slices.Contains(of, s) {
			return nil, fmt.Errorf("%q is not one of %s", fmt.Sprint(v), strings.Join(of, ", "))
		}
		return s, nil
	}
}

func wholeNumber(low, high int64) func(any) (any, error) {
	return func(v any) (any, error) {
		n, ok := v.(int64)
		if !ok || n < low || n > high {
			return nil, fmt.Errorf("%v is not a whole number from %d to %d", v, low, high)
		}
		return n, nil
	}
}

// sizeValue reads bytes: 64, "64k", "1M", "2G", by 1024.
func sizeValue(v any) (any, error) {
	if n, ok := v.(int64); ok && n > 0 {
		return uint64(n), nil
	}
	s, _ := v.(string)
	digits, unit := s, 1.0
	if i := strings.IndexAny(s, "kMG"); i >= 0 && i == len(s)-1 {
		digits, unit = s[:i], math.Pow(1024, float64(strings.IndexByte("kMG", s[i])+1))
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%v is not a number of bytes, such as 64 or \"64k\"", v)
	}
	return n * uint64(unit), nil
}

func takeDuration(v any) (any, error) {
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > 1e6*time.Hour {
		return nil, fmt.Errorf("%v is not a time above 0, such as \"10s\"", v)
	}
	return d, nil
}

// takeSubmit reads when jobs arrive: "5s" all at once, "every:10s", "exp:10s" at random
// with that mean between them.
func takeSubmit(v any) (any, error) {
	s, _ := v.(string)
	_, _, err := parseSubmit(s)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func parseSubmit(s string) (kind string, d time.Duration, err error) {
	kind, rest, ok := strings.Cut(s, ":")
	if !ok {
		kind, rest = "at", s
	}
	d, err = time.ParseDuration(rest)
	if err != nil || d < 0 || !slices.Contains([]string{"at", "every", "exp"}, kind) || d > 1e6*time.Hour {
		return "", 0, fmt.Errorf("%q is not a time of arrival: use \"5s\", \"every:10s\" or \"exp:10s\"", s)
	}
	return kind, d, nil
}

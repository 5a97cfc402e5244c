package cli

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Annotations of flags.
const (
	groupKey = "exnet_group"
	valueKey = "exnet_value"
)

// Group defines flags that have a heading of their own in the help.
func Group(fs *pflag.FlagSet, heading string, define func(*pflag.FlagSet)) {
	group := pflag.NewFlagSet(heading, pflag.ContinueOnError)
	group.SortFlags = false
	define(group)
	group.VisitAll(func(f *pflag.Flag) {
		annotate(f, groupKey, heading)
		fs.AddFlag(f)
	})
}

// Tidy moves the names of values out of the usage texts, because completions show those as they
// are. It keeps the order in which the flags were defined. It makes flags that take a text, or
// parse it themselves, refuse an empty one, which an unset shell variable leaves.
func Tidy(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		if _, done := f.Value.(filled); !done && (f.Value.Type() == "string" || f.Value.Type() == "func") {
			f.Value = filled{f.Value}
		}
		if rest, ok := strings.CutPrefix(f.Usage, "`"); ok {
			name, usage, _ := strings.Cut(rest, "`")
			annotate(f, valueKey, name)
			f.Usage = strings.TrimSpace(usage)
		}
	})
}

// filled is a text that is not empty.
type filled struct{ pflag.Value }

// Set implements pflag.Value.
func (v filled) Set(s string) error {
	if s == "" {
		return errors.New("it is empty: give a value, or leave it out")
	}
	return v.Value.Set(s)
}

func annotate(f *pflag.Flag, key, value string) {
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[key] = []string{value}
}

// annotationOf returns the value that annotate stored, or "".
func annotationOf(f *pflag.Flag, key string) string {
	return strings.Join(f.Annotations[key], "")
}

// Var defines a flag whose value implements the Value of package flag.
func Var(fs *pflag.FlagSet, value flag.Value, name, usage string) {
	fs.Var(standard{value}, name, usage)
}

// standard makes a flag.Value a pflag.Value.
type standard struct{ flag.Value }

// Type implements pflag.Value.
func (standard) Type() string { return "value" }

// Number defines a flag that takes a whole number between low and high.
func Number(fs *pflag.FlagSet, to *int, name string, low, high int, usage string) {
	fs.Func(name, usage, func(s string) error { return ParseNumber(to, s, low, high) })
}

// ParseNumber reads a whole number between low and high.
func ParseNumber(to *int, s string, low, high int) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return fmt.Errorf("use a number from %d to %d", low, high)
	}
	*to = n
	return nil
}

// Duration defines a flag that takes a time between low and high.
func Duration(fs *pflag.FlagSet, to *time.Duration, name string, low, high time.Duration, usage string) {
	fs.Func(name, usage, func(s string) error { return ParseDuration(to, s, low, high) })
}

// ParseDuration reads a time between low and high.
func ParseDuration(to *time.Duration, s string, low, high time.Duration) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < low || d > high {
		return fmt.Errorf("use a time from %s to %s, such as 250ms or 2s", formatShort(low), formatShort(high))
	}
	*to = d
	return nil
}

// formatShort formats a time without the units that are 0.
func formatShort(d time.Duration) string {
	s := d.String()
	for _, rest := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, rest) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// ParseMicroseconds reads a time up to high: a number of microseconds, or a time with its unit.
func ParseMicroseconds(s string, high time.Duration) (time.Duration, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	d := time.Duration(min(n, int64(high/time.Microsecond)+1)) * time.Microsecond
	if err != nil {
		d, err = time.ParseDuration(s)
	}
	if err != nil || n < 0 || d < 0 || d > high {
		return 0, fmt.Errorf("use 0 to %d microseconds, or a time such as 50us", high/time.Microsecond)
	}
	return d, nil
}

// Size defines a flag that takes a number of bytes between low and high.
func Size(fs *pflag.FlagSet, to *int, name string, low, high int, usage string) {
	fs.Func(name, usage, func(s string) error {
		n, err := ParseSize(s, low, high)
		if err == nil {
			*to = n
		}
		return err
	})
}

// sizeUnits are the powers of two that may follow a number of bytes.
var sizeUnits = []struct {
	names []string
	shift int
}{
	{[]string{"kib", "k"}, 10}, {[]string{"mib", "m"}, 20}, {[]string{"gib", "g"}, 30},
}

// ParseSize reads a number of bytes between low and high: 64, 64k, 64KiB, 1m and so on,
// in powers of two.
func ParseSize(s string, low, high int) (int, error) {
	text := strings.TrimSpace(s)
	digits, shift := strings.ToLower(text), 0
units:
	for _, u := range sizeUnits {
		for _, name := range u.names {
			if d, ok := strings.CutSuffix(digits, name); ok {
				digits, shift = d, u.shift
				break units
			}
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write bytes, as in 64, 128k or 1m", text)
	}
	if n < 0 || n > high>>shift || n<<shift < low {
		return 0, fmt.Errorf("%s is not between %d and %d bytes", text, low, high)
	}
	return n << shift, nil
}

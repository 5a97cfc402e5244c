package cli

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "64": 64, " 64 ": 64, "64k": 65536, "64K": 65536, "64KiB": 65536, "1m": 1 << 20, "1MiB": 1 << 20, "1g": 1 << 30} {
		if n, err := ParseSize(text, 0, 1<<30); err != nil || n != want {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "not a size", "k": "not a size", "1e3": "not a size", "1.5k": "not a size", "0x10": "not a size", "1kb": "not a size", "1kk": "not a size",
		"-1": "not between", "9": "not between", "2k": "not between", "9223372036854775807g": "not between", "99999999999999999999": "not a size",
	} {
		if n, err := ParseSize(text, 10, 1024); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v; want %q", text, n, err, want)
		}
	}
}

func TestParseMicroseconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "50": 50 * time.Microsecond, "50us": 50 * time.Microsecond, "1s": time.Second, "1000000": time.Second} {
		if d, err := ParseMicroseconds(text, time.Second); err != nil || d != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "-1", "-1us", "1000001", "1.1s", "1.5", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "x"} {
		if d, err := ParseMicroseconds(text, time.Second); err == nil || !strings.Contains(err.Error(), "use 0 to 1000000 microseconds") {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("64k")
	f.Add("-9223372036854775808g")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseSize(text, 7, math.MaxInt); err == nil && n < 7 {
			t.Errorf("%q: %d", text, n)
		}
	})
}

func TestParseOthers(t *testing.T) {
	var d time.Duration
	if err := ParseDuration(&d, "250ms", time.Millisecond, time.Second); err != nil || d != 250*time.Millisecond {
		t.Error(d, err)
	}
	for _, s := range []string{"", "1", "2s", "1us", "-1s", "9999999999h"} {
		if err := ParseDuration(&d, s, time.Millisecond, time.Second); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	var n int
	for _, s := range []string{"", "x", "0", "11", "1e1", "99999999999999999999"} {
		if err := ParseNumber(&n, s, 1, 10); err == nil || n != 0 {
			t.Errorf("%q is taken: %d", s, n)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("napi: invalid configuration"), "invalid configuration"},
		{errors.New("path exn: napi: emp: it is napi"), "path exn: it is napi"},
		{errors.New("napi"), "napi"},
		{errors.New("daemon: invalid configuration: no node"), "no node"},
		{errors.New("dimensions \"9x\": use numbers such as 4x4x4: fabric: invalid argument"), "dimensions \"9x\": use numbers such as 4x4x4"},
		{errors.New("open x: invalid argument"), "open x: invalid argument"},
		{errors.New("fork/exec /bin/x: permission denied"), "/bin/x: permission denied"},
		{errors.New("exec: \"x\": executable file not found in $PATH"), "\"x\": executable file not found in $PATH"},
		{fmt.Errorf("a: %w", errors.Join(errors.New("wire: b"), errors.New("tun: c"))), "a: b; c"},
		{errors.New("open /run/napi: tun: no such file"), "open /run/napi: no such file"},
		{errors.New("open a\x1b[31m\tb\r\xff/ü: no such file"), `open a\x1b[31m\tb\r\xff/ü: no such file`},
		{errors.New("open " + strings.Repeat("a", 5000) + "/b: no such file"), "open " + strings.Repeat("a", 260) + "…" + strings.Repeat("a", 37) + "/b: no such file"},
	} {
		if got := Text(c.err); got != c.want {
			t.Errorf("%q became %q, want %q", c.err, got, c.want)
		}
	}
}

func TestClosest(t *testing.T) {
	names := []string{"demo", "up", "down", "status", "topo", "no-fast-path", "json"}
	for name, want := range map[string]string{
		"dmeo": "demo", "stauts": "status", "pu": "up", "dow": "down", "no-fast": "no-fast-path", "jsno": "json",
		"xyzzy": "", "": "", "x": "", strings.Repeat("a", 1<<16): "", "no-fast-paths": "no-fast-path",
	} {
		if got := Closest(name, names); got != want {
			t.Errorf("%.20q: %q, want %q", name, got, want)
		}
	}
}

func TestFlagErrors(t *testing.T) {
	var n int
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	Size(fs, &n, "size", 1, 64, "`BYTES` of a message")
	fs.BoolP("verbose", "v", false, "more")
	fs.Int("runs", 1, "`N` runs")
	fs.Duration("time", 0, "`TIME` of a run")
	for args, want := range map[string]string{
		"--size 65":                          "--size: 65 is not between 1 and 64 bytes",
		"--size":                             "--size needs a value",
		"--sise 4":                           "there is no flag --sise: did you mean --size?",
		"-size=4":                            "there is no flag -size: did you mean --size?",
		"--zzzzzzz=1":                        "there is no flag --zzzzzzz",
		"-z":                                 "there is no flag -z",
		"--runs 1.5":                         `--runs: "1.5" is not a whole number`,
		"--runs 1" + strings.Repeat("0", 20): "--runs: 1" + strings.Repeat("0", 20) + " is too far from 0",
		"--time 5":                           `--time: "5" is not a time: write one such as 250ms or 2s`,
		"-v=maybe":                           `--verbose: "maybe" is neither true nor false`,
		"--=x":                               "bad flag syntax: --=x",
	} {
		err := FlagError(fs, fs.Parse(strings.Fields(args)))
		var usage UsageError
		if !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%s: %q, want %q", args, err, want)
		}
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{nil, 0, ""},
		{ExitStatus(7), 7, ""},
		{errors.New("tun: a\nb"), 125, "x: a; b\n"},
		{Usagef("napi: no"), 2, "x: no (see x -h)\n"},
		{Mistakes(nil), 0, ""},
		{Mistakes(errors.New("f:1: tun: a\nf:2: b")), 125, "x: f:1: a\nx: f:2: b\n"},
		{UsageError{Mistakes(errors.New("f:1: a"))}, 2, "x: f:1: a\n"},
		{fmt.Errorf("y: %w", Mistakes(errors.New(strings.Repeat("a\n", 59)+"a"))), 125, strings.Repeat("x: a\n", 50) + "x: 10 mistakes more\n"},
	} {
		var b bytes.Buffer
		if status := Report(&b, "x", c.err, 125); status != c.status || !strings.HasSuffix(b.String(), c.want) || (c.want == "") != (b.Len() == 0) {
			t.Errorf("%v: %d, %q; want %d, %q", c.err, status, &b, c.status, c.want)
		}
	}
}

func TestHelpAndPage(t *testing.T) {
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	fs.Int("runs", 1, "`N` runs of each path (5)")
	Group(fs, "The fabric", func(fs *pflag.FlagSet) {
		fs.StringP("netns", "n", "", "`NAME|PATH` "+strings.Repeat("word ", 20))
	})
	fs.Bool("json", false, ".dot and \\ and -")
	fs.Bool("secret", false, "hidden")
	fs.Lookup("secret").Hidden = true
	Tidy(fs)
	Tidy(fs) // changes nothing more
	want := `
Flags:
  --runs N             runs of each path (5)
  --json               .dot and \ and -

The fabric:
  -n, --netns NAME|PATH
                       word word word word word word word word word word word
                       word word word word word word word word word
`
	if got := Flags(fs, "Flags"); got != want {
		t.Errorf("got %s want %s", got, want)
	}
	p := NewPage("x-y", "a thing")
	p.Section("EMPTY", "")
	p.Section("TEXT", ".a\n'b\nc")
	p.Options(fs)
	text := p.String("v1")
	for _, want := range []string{".TH X\\-Y 1", "x\\-y \\- a thing", "\\&.a\n\\&'b\nc", ".B \\-\\-runs N\n", "\\&.dot and \\e and \\-"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if strings.Contains(text, "EMPTY") || strings.Contains(text, "secret") {
		t.Error(text)
	}
}

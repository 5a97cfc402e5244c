package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// events is a run of go test -json, shortened: two packages, one of which fails, and one
// that does not build.
const events = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"run","Package":"a","Test":"TestAll"}
{"Action":"run","Package":"a","Test":"TestAll/one"}
{"Action":"pass","Package":"a","Test":"TestAll/one"}
{"Action":"output","Package":"a","Test":"TestAll/two","Output":"    all_test.go:7: needs root: run it as root\n"}
{"Action":"output","Package":"a","Test":"TestAll/two","Output":"--- SKIP: TestAll/two (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestAll/two"}
{"Action":"pass","Package":"a","Test":"TestAll"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.010s\n"}
{"Action":"pass","Package":"a","Elapsed":0.01}
{"Action":"output","Package":"b","Test":"TestBad/sub","Output":"    bad_test.go:3: wrong\n"}
{"Action":"fail","Package":"b","Test":"TestBad/sub"}
{"Action":"output","Package":"b","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"b","Test":"TestBad"}
{"Action":"output","Package":"b","Output":"FAIL\n"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.010s\n"}
{"Action":"fail","Package":"b"}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1: undefined: x\n"}
{"Action":"output","Package":"c","Output":"FAIL\tc [build failed]\n"}
{"Action":"fail","Package":"c"}
{"Action":"output","Package":"d","Output":"?   \td\t[no test files]\n"}
{"Action":"skip","Package":"d"}
`

func TestTally(t *testing.T) {
	var out bytes.Buffer
	a, err := readEvents(strings.NewReader(events), &out)
	if err != nil {
		t.Fatal(err)
	}
	const printed = `ok  	a	0.010s	[1 skipped]
    bad_test.go:3: wrong
--- FAIL: TestBad (0.00s)
FAIL
FAIL	b	0.010s
c.go:1: undefined: x
FAIL	c [build failed]
`
	if out.String() != printed {
		t.Errorf("printed:\n%s", out.String())
	}
	file := filepath.Join(t.TempDir(), "account")
	if err := a.storeAccount(file); err != nil {
		t.Fatal(err)
	}
	both, err := loadAccount(file)
	if err != nil {
		t.Fatal(err)
	}
	both.addAccount(&account{Passed: 5})
	out.Reset()
	const sum = `skipped: needs root: run it as root
	a TestAll/two
failed: b TestBad/sub
failed: c
7 passed, 2 failed, 1 skipped
`
	if ok := both.printAccount(&out); ok || out.String() != sum {
		t.Errorf("%v:\n%s", ok, out.String())
	}
}

// A run that was cut short has failed.
func TestCutShort(t *testing.T) {
	a, err := readEvents(strings.NewReader(`{"Action":"start","Package":"a"}`+"\n"), &bytes.Buffer{})
	if err != nil || len(a.Failed) != 1 {
		t.Error(a, err)
	}
}

func TestNoAccountYet(t *testing.T) {
	a, err := loadAccount(filepath.Join(t.TempDir(), "none"))
	if err != nil || !a.printAccount(&bytes.Buffer{}) {
		t.Error(a, err)
	}
}

// A test that failed is run again, and is no failure if it passes then.
func TestAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "account")
	do := func(c command, in string) string {
		t.Helper()
		var out bytes.Buffer
		c.file = file
		if _, err := c.run(strings.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	fail := func(test, output string) string {
		return `{"Action":"output","Package":"b","Test":"` + test + `","Output":"` + output + `\n"}
{"Action":"fail","Package":"b","Test":"` + test + `","Elapsed":59.9}
{"Action":"fail","Package":"b"}
`
	}
	do(command{}, fail("TestSlow/a+b", "it took long"))
	do(command{race: true}, strings.ReplaceAll(fail("TestRaced", "it took long"), "59.9", "60"))
	const list = "-\t3\tb\t^TestSlow$/^a\\+b$\tb TestSlow/a+b\n-race\t1\tb\t^TestRaced$\tb TestRaced\n"
	if got := do(command{again: true}, ""); got != list {
		t.Errorf("%q, want %q", got, list)
	}
	do(command{steady: "b TestRaced"}, "")
	const sum = "unsteady, failed once and passed by itself: b TestRaced\nfailed: b TestSlow/a+b\n1 passed, 1 failed, 0 skipped\n"
	if got := do(command{sum: true}, ""); got != sum {
		t.Errorf("%q, want %q", got, sum)
	}
	do(command{}, fail("TestWrong", "WARNING: DATA RACE"))
	if got := do(command{again: true}, ""); got != "" {
		t.Errorf("%q although one failure is grave", got)
	}
	var out bytes.Buffer
	if _, err := (command{file: file, steady: "b TestOther"}).run(nil, &out); err == nil {
		t.Error("a test that has not failed has passed again")
	}
}

// A sign is grave, but not in the name of a counter of nothing.
func TestGrave(t *testing.T) {
	for line, want := range map[string]bool{
		"a_test.go:3: it took long":                                  false,
		"panic: runtime error":                                       true,
		"==7==ERROR: AddressSanitizer failed to allocate 0x10 bytes": true,
		"TestAddressSanitizer/leaks: bytes differ":                   true,
		"==7==ERROR: AddressSanitizer: heap-use-after-free":          true,
		"=== RUN   TestAddressSanitizer/leaks":                       false,
		"    --- FAIL: TestAddressSanitizer/leaks (0.1s)":            false,
		"/tmp/TestAddressSanitizer1/001: some do not come":           false,
		"bytes differ": true,
		`got {"ok":false,"rx_drop_checksum":0,"tx":1}`:               false,
		`got "{\"ok\":false,\"ip.rx_drop_checksum\":0}"`:             false,
		`got {"ok":false,"rx_drop_checksum":1}`:                      true,
		`got {"rx_drop_checksum":0,"detail":"checksum of 5 is bad"}`: true,
		`got {"rx_drop_checksum":07}`:                                true,
		"        corrupt                 0":                          false,
		"        leaks                   10":                         true,
		`"faults":"drop=0.01,corrupt=0.001","ok":false`:              false,
		"drop=0.01,corrupt=0.001: 3 bytes corrupt":                   true,
	} {
		if got := isGrave(line); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// Where many fail it is not for work beside them.
func TestAgainMany(t *testing.T) {
	var a account
	for range mostAgain + 1 {
		a.Failed = append(a.Failed, failure{Package: "p", Test: "TestX"})
	}
	var out bytes.Buffer
	if a.listAgain(&out); out.Len() > 0 {
		t.Errorf("%q", &out)
	}
}

// Runs that end at the same time are all added.
func TestAddsAtOnce(t *testing.T) {
	c := command{file: filepath.Join(t.TempDir(), "account")}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := c.run(strings.NewReader(events), io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if a, err := loadAccount(c.file); err != nil || a.Passed != 16*2 {
		t.Errorf("%v, %v passed, want 32", err, a.Passed)
	}
}

package main

import (
	"bytes"
	"path/filepath"
	"strings"
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
	a, err := read(strings.NewReader(events), &out)
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
	if err := a.store(file); err != nil {
		t.Fatal(err)
	}
	both, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	both.add(&account{Passed: 5})
	out.Reset()
	const sum = `skipped: needs root: run it as root
	a TestAll/two
failed: b TestBad/sub
failed: c
7 passed, 2 failed, 1 skipped
`
	if ok := both.print(&out); ok || out.String() != sum {
		t.Errorf("%v:\n%s", ok, out.String())
	}
}

// A run that was cut short has failed.
func TestCutShort(t *testing.T) {
	a, err := read(strings.NewReader(`{"Action":"start","Package":"a"}`+"\n"), &bytes.Buffer{})
	if err != nil || len(a.Failed) != 1 {
		t.Error(a, err)
	}
}

func TestNoAccountYet(t *testing.T) {
	a, err := load(filepath.Join(t.TempDir(), "none"))
	if err != nil || !a.print(&bytes.Buffer{}) {
		t.Error(a, err)
	}
}

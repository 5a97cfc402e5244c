package ofi_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"flag"
	"os/exec"
	"path/filepath"
	"testing"

	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/link/ofi"
	"exnet/fabric/rma"
	"exnet/internal/leaktest"
	"exnet/internal/longtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// needHelper returns the path of the helper.
func needHelper(t *testing.T) string {
	t.Helper()
	path, err := ofi.Build(t.Context())
	if errors.Is(err, ofi.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSuite(t *testing.T) {
	helper := needHelper(t)
	for i, l := range fabrictest.OFILinks(helper) {
		t.Run(l.Name, func(t *testing.T) {
			if i > 0 {
				longtest.Nightly(t) // TestSanitizers has a helper of this kind carry something
			}
			fabrictest.Suite(t, l)
		})
	}
}

var sanitize = flag.Bool("sanitize", false, "run the suite under the sanitizers, which takes minutes")

// A helper that ends at what the sanitizers find carries messages and transfers; with
// -sanitize, the suite. Warnings are errors.
func TestSanitizers(t *testing.T) {
	needHelper(t)
	longtest.Skip(t) // builds the helper once more
	helper := filepath.Join(t.TempDir(), ofi.Name)
	out, err := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-O1", "-g",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", helper, "helper/helper.c", "-lfabric").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("ASAN_OPTIONS", "detect_leaks=0") // libfabric's, of its providers
	l := fabrictest.OFILinks(helper)[1]
	if *sanitize {
		fabrictest.Suite(t, l)
		return
	}
	nics := l.New(t, 2)
	const size = 8 << 20
	a, b := fabrictest.Register(t, nics[0], 1, size, atu.Write), fabrictest.Register(t, nics[1], 1, size, atu.Read)
	fabrictest.OpenRMA(t, nics[1], 1, rma.Config{})
	e := fabrictest.OpenRMA(t, nics[0], 1, rma.Config{})
	_, _ = rand.Read(b.Bytes())
	nla, err := b.Lend(0)
	if err != nil {
		t.Fatal(err)
	}
	get := rma.GetReq{Local: a.NLA(), Remote: nla, Len: size, Node: 1, VPID: 1, Notify: rma.NotifyCompleter}
	if err := e.Get(get); err != nil {
		t.Fatal(err)
	}
	fabrictest.Eventually(t, "the GET's end", func() bool { _, ok := e.Next(); return ok })
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("something else has come")
	}
}

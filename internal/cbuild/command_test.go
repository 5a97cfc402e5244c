package cbuild

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Files are compiled each by itself, with the flags, and linked with the libraries; what the
// compiler says of one that it refuses is the error, and no object file stays.
func TestCommand(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.c":    "#include <math.h>\n#include <stdlib.h>\nint two(void);\nint main(void) { return (int)cbrt(atof(\"27\")) + two(); }\n",
		"part/a.c":  "static int n = TWO;\nint two(void) { return n; }\n",
		"part/b.c":  "static int n = 4;\nint four(void) { return n; }\n", // its n is another one
		"refused.c": "int x = ;\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := Command{Dir: dir, Flags: []string{"-fno-builtin", "-DTWO=2"}, Files: []string{"main.c", "part/a.c", "part/b.c"}, Libs: []string{"-lm"}}
	out := filepath.Join(t.TempDir(), "program")
	if err := c.Run(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	exit := new(exec.ExitError)
	if err := exec.CommandContext(t.Context(), out).Run(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("%v, want exit status 5", err)
	}

	c.Files = append(c.Files, "refused.c")
	err := c.Run(t.Context(), filepath.Join(filepath.Dir(out), "refused"))
	said := new(Error)
	if !errors.Is(err, ErrSource) || !errors.As(err, &said) || !strings.Contains(said.Output, "refused.c:1:9: error") {
		t.Errorf("%v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v are there, want the program alone (%v)", entries, err)
	}
}

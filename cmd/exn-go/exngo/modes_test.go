package exngo

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/broker/connstats"
	"exnet/internal/longtest"
	"exnet/test/testlab"
)

// both runs a program of testdata until both ends of its connection are direct.
func both(t *testing.T, program string) {
	t.Helper()
	s := testlab.StartBroker(t)
	startWeb(t, program, "EXNET_LOOPBACK=1", client.PathEnv+"="+s.Path())
	eventuallyDirect(t, s)
}

// eventuallyDirect waits until a program's two ends are direct.
func eventuallyDirect(t *testing.T, s *broker.Server) {
	t.Helper()
	for end := time.Now().Add(testWait); ; time.Sleep(time.Millisecond) {
		client, server := directEnds(s)
		switch {
		case client == 1 && server == 1:
			return
		case time.Now().After(end):
			t.Errorf("direct ends: client %d, server %d, want 1 of each: %+v", client, server, s.Connections())
			return
		}
	}
}

// directEnds counts the ends that are direct.
func directEnds(s *broker.Server) (client, server int) {
	for _, c := range s.Connections() {
		switch {
		case c.Mode != connstats.ModeDirect.String():
		case c.Server:
			server++
		default:
			client++
		}
	}
	return client, server
}

// withDependency makes a module of testdata/echo that imports a package of another
// module, which is where it returns.
func withDependency(t *testing.T) (dir, dep string) {
	t.Helper()
	dir, dep = copyTree(t, "echo"), t.TempDir()
	writeFile(t, filepath.Join(dep, "go.mod"), "module dep.test\n\ngo 1.25\n")
	writeFile(t, filepath.Join(dep, "dep.go"), "package dep\n\nconst Word = \"dep\"\n")
	writeFile(t, filepath.Join(dir, "use.go"), "package main\n\nimport \"dep.test\"\n\nvar _ = dep.Word\n")
	return dir, dep
}

// TestModules builds programs whose dependencies come from a replacement, a vendor
// folder and a workspace: no file of theirs changes.
func TestModules(t *testing.T) {
	longtest.Skip(t)
	const mod = "module echo.test\n\ngo 1.25\n\nrequire dep.test v0.0.0\n"
	t.Run("replace", func(t *testing.T) {
		dir, dep := withDependency(t)
		writeFile(t, filepath.Join(dir, "go.mod"), mod+"\nreplace dep.test => "+dep+"\n")
		both(t, buildUnchanged(t, dir))
	})
	t.Run("vendor", func(t *testing.T) {
		dir, dep := withDependency(t)
		writeFile(t, filepath.Join(dir, "go.mod"), mod+"\nreplace dep.test => "+dep+"\n")
		cmd := exec.Command("go", "mod", "vendor")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := os.RemoveAll(dep); err != nil { // only the folder has it
			t.Fatal(err)
		}
		both(t, buildUnchanged(t, dir, "-mod=vendor"))
	})
	t.Run("workspace", func(t *testing.T) {
		dir, dep := withDependency(t)
		writeFile(t, filepath.Join(dir, "go.mod"), "module echo.test\n\ngo 1.25\n")
		work := filepath.Join(t.TempDir(), "go.work")
		writeFile(t, work, "go 1.25\n\nuse "+dir+"\n\nuse "+dep+"\n")
		t.Setenv("EXNGO_TEST_GOWORK", work)
		both(t, buildUnchanged(t, dir))
	})
	t.Run("modfile", func(t *testing.T) {
		dir, dep := withDependency(t)
		other := filepath.Join(t.TempDir(), "other.mod")
		writeFile(t, other, mod+"\nreplace dep.test => "+dep+"\n")
		both(t, buildUnchanged(t, dir, "-modfile="+other))
	})
	t.Run("named exnet", func(t *testing.T) {
		dir := copyTree(t, "echo")
		writeFile(t, filepath.Join(dir, "go.mod"), "module "+module+"\n\ngo 1.25\n")
		both(t, buildUnchanged(t, dir))
	})
}

// buildUnchanged builds the program in dir, which cannot be written meanwhile.
func buildUnchanged(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755) // t.TempDir removes it
	before := listing(t, dir)
	program := buildProgram(t, dir, args...)
	if after := listing(t, dir); after != before {
		t.Errorf("files before:\n%s\nafter:\n%s", before, after)
	}
	return program
}

// listing is the names and contents of files.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		b.WriteString(name + "\n" + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFlags builds with flags that change how. Each set of flags that the compiler knows takes all
// of the standard library once more, so that one build has several.
func TestFlags(t *testing.T) {
	longtest.Skip(t)
	t.Run("static", func(t *testing.T) {
		t.Setenv("CGO_ENABLED", "0")
		program := buildProgram(t, copyTree(t, "echo"))
		f, err := elf.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("it has a %v", p.Type)
			}
		}
		both(t, program)
	})
	t.Run("pie and trimpath", func(t *testing.T) {
		program := buildProgram(t, copyTree(t, "echo"), "-buildmode=pie", "-trimpath")
		both(t, program)
		if cache, err := cacheDir(); err != nil || strings.Contains(string(readFile(t, program)), cache) {
			t.Errorf("-trimpath left %s in the program, or %v", cache, err)
		}
	})
	t.Run("race", func(t *testing.T) {
		both(t, buildProgram(t, copyTree(t, "echo"), "-race"))
	})
	t.Run("arm64", func(t *testing.T) {
		t.Setenv("GOARCH", "arm64")
		b, err := Explain(buildProgram(t, copyTree(t, "echo")))
		if err != nil || b.With == "" {
			t.Errorf("%v, %v", b, err)
		}
	})
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTest has a generated main, in a test of package main.
func TestTest(t *testing.T) {
	longtest.Skip(t)
	s := testlab.StartBroker(t)
	dir := copyTree(t, "echo")
	writeFile(t, filepath.Join(dir, "echo_test.go"), `package main

import "testing"

func TestRun(t *testing.T) {
	if err := Run(); err != nil {
		t.Fatal(err)
	}
}
`)
	report := filepath.Join(t.TempDir(), "test")
	out, err := exnGo(t, dir, "test", "-c", "-vet=all", "-o", report, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(report, "-test.v")
	cmd.Env = append(os.Environ(), "EXNET_LOOPBACK=1", client.PathEnv+"="+s.Path())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRun") {
		t.Errorf("%v\n%s", err, out)
	}
	if version, err := Explain(report); err != nil || version.With == "" {
		t.Errorf("%v, %v", version, err)
	}
}

// TestUserOverlay has the user replace files of the program and of package net: both
// overlays hold.
func TestUserOverlay(t *testing.T) {
	longtest.Skip(t)
	tc, err := findToolchain("")
	if err != nil {
		t.Fatal(err)
	}
	dir, other := copyTree(t, "echo"), t.TempDir()
	writeFile(t, filepath.Join(other, "extra.go"), "package main\n\nimport \"net\"\n\nfunc init() { net.UserWord = true }\n")
	tcpsock := filepath.Join(tc.GOROOT, "src", "net", "tcpsock.go")
	writeFile(t, filepath.Join(other, "tcpsock.go"), string(readFile(t, tcpsock))+"\n// UserWord is the user's.\nvar UserWord bool\n")
	text, err := json.Marshal(overlay{Replace: map[string]string{
		"extra.go": filepath.Join(other, "extra.go"), // relative to dir
		tcpsock:    filepath.Join(other, "tcpsock.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(other, "overlay.json"), string(text))
	both(t, buildProgram(t, dir, "-overlay", filepath.Join(other, "overlay.json")))
}

// TestEnv has a go command build the program by what exn-go env prints.
func TestEnv(t *testing.T) {
	longtest.Skip(t)
	dir := copyTree(t, "echo")
	out, err := exnGo(t, dir, "env").Output()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("sh", "-ec", string(out)+"\nexec go build -o "+program)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	both(t, program)
}

// TestRefused has what cannot be built say so in one line.
func TestRefused(t *testing.T) {
	dir := copyTree(t, "echo")
	for _, tt := range []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"other system", []string{"GOOS=windows"}, []string{"build"}, "GOOS=windows: direct sockets are for linux"},
		{"other machine", []string{"GOARCH=386"}, []string{"build"}, "GOARCH=386: direct sockets are for amd64"},
		{"no GOROOT", []string{"GOROOT=/nonexistent"}, []string{"build"}, "GOROOT"},
		{"no overlay", nil, []string{"build", "-overlay=/nonexistent"}, "-overlay: open /nonexistent: no such file"},
		{"bad overlay", nil, []string{"build", "-overlay=main.go"}, "-overlay: main.go: invalid character"},
		{"no go", []string{"PATH=/nonexistent"}, []string{"build"}, `executable file not found`},
		{"command", nil, []string{"mend"}, `unknown command "mend": choose from`},
		{"explain nothing", nil, []string{"explain"}, "name a binary"},
		{"explain text", nil, []string{"explain", "main.go"}, "main.go: "},
	} {
		cmd := exnGo(t, dir, tt.args...)
		cmd.Env = append(cmd.Env, tt.env...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		err := cmd.Run()
		if err == nil || !strings.Contains(stderr.String(), tt.want) || strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "exn-go") {
			t.Errorf("%s: %v, %q, want one line with %q", tt.name, err, &stderr, tt.want)
		}
	}
}

// TestPackageToo builds a program that uses package directsockets itself: its connection
// is the package's, and package net below leaves it alone.
func TestPackageToo(t *testing.T) {
	longtest.Skip(t)
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := copyTree(t, "echo")
	text := strings.NewReplacer("net.Listen(", "directsockets.Listen(", "net.Dial(", "directsockets.Dial(", "*net.TCPConn", "*directsockets.Conn",
		"\t\"net\"\n", "\t\"exnet/directsockets\"\n").Replace(string(readFile(t, filepath.Join(dir, "main.go"))))
	writeFile(t, filepath.Join(dir, "main.go"), text)
	writeFile(t, filepath.Join(dir, "go.mod"), "module echo.test\n\ngo 1.26.3\n\nrequire "+module+" v0.0.0\n\nrequire golang.org/x/sys v0.49.0\n\nreplace "+module+" => "+root+"\n")
	writeFile(t, filepath.Join(dir, "go.sum"), string(readFile(t, filepath.Join(root, "go.sum"))))
	both(t, buildProgram(t, dir, "-mod=mod"))
}

package preload

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"exnet/internal/cbuild"
)

// A program that cannot come to a socket, to other code or to another program is started without
// the library, by each call that starts one; any other with it.
func TestSpare(t *testing.T) {
	t.Parallel()
	library, dir := testLibrary(t), t.TempDir()
	if ForMusl(library) {
		t.Skip("with musl, all programs have it")
	}
	const loaded, spared = 0, 1
	build := func(name string, flags ...string) string {
		path := filepath.Join(dir, name)
		compileC(t, path, cbuild.Command{Flags: append(slices.Clone(warned), flags...), Files: []string{"testdata/spare.c"}})
		return path
	}
	starts := filepath.Join(dir, "starts")
	compileC(t, starts, cbuild.Command{Flags: warned, Files: []string{"testdata/starts.c"}})
	status := func(way, program string, env ...string) int {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), starts, way, program)
		cmd.Env = append(slices.Clone(env), "PATH="+dir)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if len(out) > 0 {
			t.Errorf("%s %s: %s", way, program, out)
		}
		return cmd.ProcessState.ExitCode()
	}
	preload := "LD_PRELOAD=" + library

	lean := build("lean", "-DREACH=0")
	for _, way := range []string{"execve", "execvp", "execl", "posix_spawn", "posix_spawnp", "vfork"} {
		if got := status(way, lean, preload); got != spared {
			t.Errorf("%s: exit status %d, want %d: no library", way, got, spared)
		}
	}
	if got := status("execve", lean, "LD_PRELOAD="+tokenPath(t, library)); got != spared {
		t.Errorf("by $LIB: exit status %d, want %d: no library", got, spared)
	}
	if got := status("socket", lean, preload); got != loaded {
		t.Errorf("of a process with a socket: exit status %d, want %d: the library", got, loaded)
	}
	for _, more := range []string{"LD_LIBRARY_PATH=/nowhere", "LD_BIND_NOW=1"} {
		if got := status("execve", lean, preload, more); got != loaded {
			t.Errorf("%s: exit status %d, want %d: the library", more, got, loaded)
		}
	}
	if got := status("execve", lean, preload+" libm.so.6"); got != loaded {
		t.Errorf("with another preloaded library: exit status %d, want %d: the library", got, loaded)
	}

	for name, flags := range map[string][]string{
		"socket":      {"-DREACH=socket(0, 0, 0)"},
		"accept":      {"-DREACH=accept(0, 0, 0)"},
		"recvmsg":     {"-DREACH=recvmsg(0, 0, 0)"},
		"exec":        {"-DREACH=execv(argv[0], argv)"},
		"fork":        {"-DREACH=fork()"},
		"vfork":       {"-DREACH=vfork()"},
		"system":      {"-DREACH=system(argv[0])"},
		"popen":       {"-DREACH=!popen(argv[0], argv[1])"},
		"dlopen":      {"-DREACH=!dlopen(argv[0], 1)"},
		"syscall":     {"-DREACH=syscall(0)"},
		"environ":     {"-DREACH=!environ"},
		"name's end":  {"-DREACH=socket(0, 0, 0)", "-DOWN_NAME=my_socket", "-rdynamic"},
		"pidfd_spawn": {"-DREACH=0", "-DOWN_NAME=pidfd_spawn", "-rdynamic"},
		"a run path":  {"-DREACH=0", "-Wl,-rpath,/nowhere"},
		"any library": {"-DREACH=0", "-Wl,--no-as-needed", "-lresolv"},
	} {
		if got := status("execve", build(name, flags...), preload); got != loaded {
			t.Errorf("with %s: exit status %d, want %d: the library", name, got, loaded)
		}
	}

	// A file that ends early is none to judge: posix_spawn fails, or its child does.
	text, err := os.ReadFile(lean)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut")
	for n := 0; n < len(text); n += 500 {
		if err := os.WriteFile(cut, text[:n], 0o700); err != nil {
			t.Fatal(err)
		}
		if got := status("posix_spawn", cut, preload); got < 0 {
			t.Errorf("of the file's first %d bytes: the program that starts it crashes", n)
		}
	}
}

// tokenPath is a path of the library in which the dynamic linker puts a folder in the place of
// $LIB, as in containers.
func tokenPath(t *testing.T, library string) string {
	t.Helper()
	dir := t.TempDir()
	for _, lib := range []string{"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"} {
		if err := os.MkdirAll(filepath.Join(dir, lib), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(library, filepath.Join(dir, lib, Name)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "$LIB", Name)
}

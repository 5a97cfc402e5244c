package exncni_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/cmd/exn-cni/exncni"
	"exnet/directsockets/preload"
)

func hook(t *testing.T, in string) (status int, out, said string) {
	t.Helper()
	var stdout, stderr strings.Builder
	status = exncni.Run([]string{"oci-hook"}, strings.NewReader(in), &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// A container that does not ask gets its config.json back, byte by byte.
func TestHookLeavesOthersAlone(t *testing.T) {
	for _, in := range []string{
		`{"ociVersion":"1.0.2", "process":{"env":["A=1","EXNET=0"]}, "x":{"y":[1, 2.50]}}`,
		`{"annotations":{"io.exnet":"0"},"process":{"env":["EXNET=11"]}}`,
		`{}`,
	} {
		if status, out, said := hook(t, in); status != 0 || out != in || said != "" {
			t.Errorf("%s: status %d, %s%s", in, status, out, said)
		}
	}
}

// podman runs a hook without an environment; a build of the library finds its compiler even so.
func TestHookWithoutPath(t *testing.T) {
	if _, err := preload.Build(t.Context()); err != nil {
		t.Skip(err)
	}
	t.Setenv("PATH", "")
	if status, _, said := hook(t, `{"process":{"env":["EXNET=1"]}}`); status != 0 {
		t.Fatal(said)
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Error(err)
	}
}

func TestHookGivesDirectSockets(t *testing.T) {
	if _, err := preload.Build(t.Context()); err != nil {
		t.Skip(err)
	}
	for _, in := range []string{
		`{"process":{"args":["x"],"env":["A=1","EXNET=1"]},"mounts":[{"destination":"/proc","type":"proc"}],"other":12345678901234567890}`,
		`{"annotations":{"io.exnet":"1"},"process":{"args":["x"],"env":["A=1","LD_PRELOAD=/a.so"]},"mounts":[{"destination":"/proc","type":"proc"}],"other":12345678901234567890}`,
	} {
		status, out, said := hook(t, in)
		if status != 0 {
			t.Fatal(said)
		}
		var spec struct {
			Process struct {
				Args, Env []string
			}
			Mounts []struct{ Destination, Source string }
			Other  json.Number
		}
		if err := json.Unmarshal([]byte(out), &spec); err != nil {
			t.Fatal(err)
		}
		if spec.Other != "12345678901234567890" || !slices.Equal(spec.Process.Args, []string{"x"}) {
			t.Errorf("the rest has changed: %s", out)
		}
		if len(spec.Mounts) != 3 || spec.Mounts[0].Destination != "/proc" || spec.Mounts[2].Destination != "/run/exn/ds" {
			t.Errorf("mounts: %+v", spec.Mounts)
		}
		want := "LD_PRELOAD=" + spec.Mounts[1].Destination
		if strings.Contains(in, "/a.so") {
			want += ":/a.so"
		}
		if !slices.Contains(spec.Process.Env, want) || !slices.Contains(spec.Process.Env, "A=1") {
			t.Errorf("environment: %v", spec.Process.Env)
		}
	}
}

// A container that has only musl gets the library for musl, which has to be installed.
func TestHookMusl(t *testing.T) {
	if _, err := preload.Build(t.Context()); err != nil {
		t.Skip(err)
	}
	_, err := preload.BuildMusl(t.Context())
	for _, test := range []struct {
		files []string
		musl  bool
	}{
		{[]string{"lib/ld-musl-x86_64.so.1"}, true},
		{[]string{"lib/ld-musl-x86_64.so.1", "lib64/ld-linux-x86-64.so.2"}, false},
		{[]string{"lib/ld-linux-aarch64.so.1"}, false},
		{nil, false},
	} {
		root := t.TempDir()
		for _, name := range test.files {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		status, _, said := hook(t, `{"root":{"path":"`+root+`"},"process":{"env":["EXNET=1"]}}`)
		if want := test.musl && err != nil; (status != 0) != want || strings.Contains(said, "for musl") != want {
			t.Errorf("%q: status %d, %s", test.files, status, said)
		}
	}
}

func TestHookRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                                   "is not a container's config.json",
		`[1]`:                                "is not a container's config.json",
		`{"annotations":{"io.exnet":"yes"}}`: `the annotation io.exnet is "yes": use 1 or 0`,
		`{"process":{"env":"EXNET=1"}}`:      "config.json: env",
		`{"annotations":{"io.exnet":"1"}}`:   "config.json has no process",
	} {
		if status, out, said := hook(t, in); status != 1 || out != "" || !strings.Contains(said, want) {
			t.Errorf("%s: status %d, %q, %q", in, status, out, said)
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	var stdout, stderr strings.Builder
	if status := exncni.Run([]string{"add", "more"}, nil, &stdout, &stderr); status != 2 || !strings.Contains(stderr.String(), `unknown command "add"`) {
		t.Errorf("status %d, %s", status, &stderr)
	}
	for _, command := range []string{"oci-hook", "library", "version", "help"} {
		stdout.Reset()
		stderr.Reset()
		status := exncni.Run([]string{command, "more"}, strings.NewReader("{}"), &stdout, &stderr)
		if status != 2 || stdout.Len() > 0 || !strings.Contains(stderr.String(), command+" takes no arguments") {
			t.Errorf("%s more: status %d, %s%s", command, status, &stdout, &stderr)
		}
	}
}

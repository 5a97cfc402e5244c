package cdi

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

func written(t *testing.T, s *Spec) (spec specs.Spec) {
	t.Helper()
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// device returns what a container with a device is given.
func device(t *testing.T, spec specs.Spec, name string) (env []string, mounts map[string]string) {
	t.Helper()
	at := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == name })
	if at < 0 {
		t.Fatalf("there is no device %s", name)
	}
	mounts = make(map[string]string)
	for _, e := range []specs.ContainerEdits{spec.ContainerEdits, spec.Devices[at].ContainerEdits} {
		env = append(env, e.Env...)
		for _, m := range e.Mounts {
			if _, twice := mounts[m.ContainerPath]; twice || !slices.Contains(m.Options, "ro") || !slices.Contains(m.Options, "bind") {
				t.Errorf("%s: mount %+v", name, m)
			}
			mounts[m.ContainerPath] = m.HostPath
		}
	}
	return env, mounts
}

// Each device gives EXNET=1 and the brokers; the library comes by one variable for both C
// libraries, by a file, or not at all.
func TestDevices(t *testing.T) {
	s := New(Libraries{Glibc: "/g/libexnds.so", Musl: "/m/libexnds.so", Preload: "/g/ld.so.preload"})
	spec := written(t, s)
	if spec.Kind != Kind || spec.Version != "0.3.0" {
		t.Errorf("kind %s, version %s", spec.Kind, spec.Version)
	}
	for name, want := range map[string]struct {
		env     string
		library bool
		file    string
	}{
		All:  {env: "EXNET=1 LD_PRELOAD=/usr/lib/exnet/$LIB/libexnds.so", library: true},
		File: {env: "EXNET=1", library: true, file: "/g/ld.so.preload"},
		Go:   {env: "EXNET=1"},
	} {
		env, mounts := device(t, spec, name)
		if strings.Join(env, " ") != want.env {
			t.Errorf("%s: environment %v", name, env)
		}
		if mounts["/run/exn/ds"] != "/run/exn/ds" || mounts["/etc/ld.so.preload"] != want.file {
			t.Errorf("%s: mounts %v", name, mounts)
		}
		for path, host := range map[string]string{
			"/usr/lib/exnet/" + folders[0] + "/libexnds.so": "/g/libexnds.so",
			"/usr/lib/exnet/lib64/libexnds.so":              "/g/libexnds.so",
			"/usr/lib/exnet/lib/libexnds.so":                "/g/libexnds.so",
			"/usr/lib/exnet/$LIB/libexnds.so":               "/m/libexnds.so",
		} {
			if !want.library {
				host = ""
			}
			if mounts[path] != host {
				t.Errorf("%s: %s is %q, want %q", name, path, mounts[path], host)
			}
		}
	}
	env, mounts := s.Edits()
	wantEnv, wantMounts := device(t, spec, All)
	slices.Sort(env)
	slices.Sort(wantEnv)
	if !slices.Equal(env, wantEnv) || len(mounts) != len(wantMounts) {
		t.Errorf("Edits: %v %v, want %v %v", env, mounts, wantEnv, wantMounts)
	}
	for _, m := range mounts {
		if wantMounts[m.Container] != m.Host {
			t.Errorf("Edits: mount %v", m)
		}
	}
}

// What a host does not have is left out, and a runtime does not look for it.
func TestMissing(t *testing.T) {
	spec := written(t, New(Libraries{Glibc: "/g/libexnds.so"}))
	if _, mounts := device(t, spec, All); mounts["/usr/lib/exnet/$LIB/libexnds.so"] != "" || len(mounts) != 1+len(folders) {
		t.Errorf("without musl: %v", mounts)
	}
	if slices.ContainsFunc(spec.Devices, func(d specs.Device) bool { return d.Name == File }) {
		t.Error("there is a device for a file that is not there")
	}
}

// The file for /etc/ld.so.preload is taken if it says what it has to; the package's does.
func TestPreloadFile(t *testing.T) {
	dir := t.TempDir()
	library, path := filepath.Join(dir, "libexnds.so"), filepath.Join(dir, File)
	if got := preloadOf(library); got != "" {
		t.Errorf("without the file: %s", got)
	}
	packaged, err := os.ReadFile("../../../../packaging/" + File)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{string(packaged): path, "/tmp/other.so\n": "", "": ""} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := preloadOf(library); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

package exncni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"exnet/directsockets/preload"
)

// Paths of the library and the brokers of direct sockets inside the container.
const (
	libraryInside = "/usr/lib/exnet/libexnds.so"
	brokerDir     = "/run/exn/ds"
)

// annotation and variable ask for direct sockets.
const (
	annotation = "io.exnet"
	variable   = "EXNET"
)

// maxSpec bounds the length of a container's config.json, in bytes.
const maxSpec = 16 << 20

// runHook is a precreate hook (podman's and CRI-O's extension of the OCI runtime
// specification): it reads a container's config.json and writes it again. If the container asks
// for direct sockets, it adds what they need.
func runHook(in io.Reader, out io.Writer) error {
	b, err := io.ReadAll(io.LimitReader(in, maxSpec+1))
	if err != nil {
		return err
	}
	if len(b) > maxSpec {
		return fmt.Errorf("config.json is longer than %d MiB", maxSpec>>20)
	}
	var spec map[string]json.RawMessage // keeps all fields, also those unknown here
	if err := json.Unmarshal(b, &spec); err != nil {
		return fmt.Errorf("standard input is not a container's config.json: %w", err)
	}
	wanted, err := wantsDirect(spec)
	if err != nil {
		return err
	}
	if wanted {
		if os.Getenv("PATH") == "" { // podman gives a hook no environment: a build finds no compiler
			os.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
		}
		build := preload.Build
		if hasMusl(spec) {
			build = preload.BuildMusl
		}
		library, err := build(context.Background())
		if err != nil {
			return err
		}
		if err := addDirect(spec, library); err != nil {
			return err
		}
		if b, err = json.Marshal(spec); err != nil {
			return err
		}
	}
	_, err = out.Write(b)
	return err
}

// wantsDirect reports whether a container asks for direct sockets.
func wantsDirect(spec map[string]json.RawMessage) (bool, error) {
	var annotations map[string]string
	if err := readField(spec, "annotations", &annotations); err != nil {
		return false, err
	}
	env, _, err := processEnvironment(spec)
	if err != nil {
		return false, err
	}
	switch v := annotations[annotation]; v {
	case "", "0":
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("the annotation %s is %q: use 1 or 0", annotation, v)
	}
	return slices.Contains(env, variable+"=1"), nil
}

// hasMusl reports whether musl is a container's only C library. It assumes glibc if it cannot
// read the container's root.
func hasMusl(spec map[string]json.RawMessage) bool {
	var root struct {
		Path string `json:"path"`
	}
	if err := readField(spec, "root", &root); err != nil || root.Path == "" {
		return false
	}
	has := func(pattern string) bool {
		found, err := fs.Glob(os.DirFS(root.Path), pattern)
		return err == nil && len(found) > 0
	}
	return has("lib/ld-musl-*.so.1") && !has("lib*/ld-linux*.so.*")
}

// processEnvironment returns the environment of a container's process, and the process object.
func processEnvironment(spec map[string]json.RawMessage) (env []string, process map[string]json.RawMessage, err error) {
	if err := readField(spec, "process", &process); err != nil {
		return nil, nil, err
	}
	return env, process, readField(process, "env", &env)
}

func readField(object map[string]json.RawMessage, name string, to any) error {
	raw, ok := object[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("config.json: %s: %w", name, err)
	}
	return nil
}

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// addDirect gives a container the library, the brokers' sockets, and the environment
// that loads the library.
func addDirect(spec map[string]json.RawMessage, library string) error {
	env, process, err := processEnvironment(spec)
	if err != nil {
		return err
	}
	if process == nil {
		return errors.New("config.json has no process")
	}
	var mounts []json.RawMessage
	if err := readField(spec, "mounts", &mounts); err != nil {
		return err
	}
	for _, m := range []mount{
		{libraryInside, "bind", library, []string{"bind", "ro"}},
		{brokerDir, "bind", brokerDir, []string{"bind", "ro"}},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		mounts = append(mounts, b)
	}
	if process["env"], err = json.Marshal(withPreload(env)); err != nil {
		return err
	}
	if spec["process"], err = json.Marshal(process); err != nil {
		return err
	}
	spec["mounts"], err = json.Marshal(mounts)
	return err
}

// withPreload returns env with the library in front of those of LD_PRELOAD.
func withPreload(env []string) []string {
	const name = "LD_PRELOAD="
	env = slices.Clone(env)
	for i, v := range env {
		if list, ok := strings.CutPrefix(v, name); ok {
			env[i] = name + preload.Prepend(libraryInside, list)
			return env
		}
	}
	return append(env, name+libraryInside)
}

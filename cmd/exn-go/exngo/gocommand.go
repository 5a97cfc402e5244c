package exngo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// ErrGo says that a Go toolchain cannot be used; the text says why.
//
//lint:ignore ST1005 Go is a name
var ErrGo = errors.New("Go toolchain")

// Releases of Go that package net is known of: the current and the previous one.
var releases = []string{"go1.26", "go1.25"}

// Architectures that direct sockets are written for.
var architectures = []string{"amd64", "arm64", "riscv64", "loong64"}

// toolchain is the go command that builds, as it is in a directory.
type toolchain struct {
	Command string // path of the go command; not from go env

	GOROOT     string
	GOVERSION  string
	GOOS       string
	GOARCH     string
	GOFLAGS    string
	GOMODCACHE string
}

// findToolchain asks the go command what it is in dir ("": here), where a go.mod may
// have it be another version.
func findToolchain(dir string) (t toolchain, err error) {
	command, err := exec.LookPath("go")
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrGo, err)
	}
	cmd := exec.Command(command, "env", "-json", "GOROOT", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "GOMODCACHE")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return t, fmt.Errorf("%w: go env: %w: %s", ErrGo, err, line)
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return t, fmt.Errorf("%w: go env: %w", ErrGo, err)
	}
	t.Command = command
	return t, t.checkVersion()
}

func (t toolchain) checkVersion() error {
	switch {
	case t.GOOS != "linux":
		return fmt.Errorf("%w: GOOS=%s: direct sockets are for linux", ErrGo, t.GOOS)
	case !slices.Contains(architectures, t.GOARCH):
		return fmt.Errorf("%w: GOARCH=%s: direct sockets are for %s", ErrGo, t.GOARCH, strings.Join(architectures, ", "))
	case !isSupported(t.GOVERSION):
		return fmt.Errorf("%w: %s in %s: exn-go knows package net of %s", ErrGo, t.GOVERSION, t.GOROOT, strings.Join(releases, " and "))
	}
	return nil
}

// isSupported reports whether a version is one of releases, such as go1.26.8, go1.26 and
// go1.26rc1.
func isSupported(version string) bool {
	return slices.ContainsFunc(releases, func(r string) bool {
		rest, ok := strings.CutPrefix(version, r)
		return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
	})
}

// outsideCache returns the toolchain with a GOROOT that is not in the module cache, where the
// go command wants no replaced files: one that go.mod has asked for is there.
func (t toolchain) outsideCache(cache string) (toolchain, error) {
	within, err := filepath.Rel(t.GOMODCACHE, t.GOROOT)
	if err != nil || within == ".." || strings.HasPrefix(within, "../") {
		return t, nil
	}
	link := filepath.Join(cache, "goroot", filepath.Base(t.GOROOT))
	if at, err := os.Readlink(link); err != nil || at != t.GOROOT {
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return t, err
		}
		if err := renameio.Symlink(t.GOROOT, link); err != nil {
			return t, err
		}
	}
	t.GOROOT, t.Command = link, filepath.Join(link, "bin", "go")
	return t, nil
}

// goEnviron returns the environment for the go command.
func (t toolchain) goEnviron(environ []string) []string {
	return append(environ, t.goVariables()...)
}

// goVariables are those that a go command needs to be this one.
func (t toolchain) goVariables() []string {
	if filepath.Dir(filepath.Dir(t.Command)) != t.GOROOT {
		return nil
	}
	return []string{"GOROOT=" + t.GOROOT, "GOTOOLCHAIN=local"}
}

// cacheDir is where exn-go has what it makes.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for exn-go's output: %w", err)
	}
	return filepath.Join(dir, "exnet", "exn-go"), nil
}

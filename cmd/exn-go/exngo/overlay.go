package exngo

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet"
	"exnet/internal/mark"
	"exnet/internal/version"
)

//go:embed std
var std embed.FS

// overlay is what -overlay of the go command names.
type overlay struct {
	Replace map[string]string
}

// tree is the files of an overlay that exn-go makes.
type tree struct {
	root  string            // GOROOT/src
	under overlay           // the user's own
	made  map[string][]byte // by path below root
	same  map[string]string // files of the release that are in a second place, by path below root
}

// makeTree makes the files for a GOROOT. under is an overlay that this one comes on top of.
func makeTree(goroot string, under overlay) (*tree, error) {
	t := &tree{root: filepath.Join(goroot, "src"), under: under, made: make(map[string][]byte), same: make(map[string]string)}
	files, err := t.releaseNet()
	if err != nil {
		return nil, err
	}
	if err := t.checkPlace(); err != nil {
		return nil, err
	}
	if err := t.makeSecondNet(files); err != nil {
		return nil, err
	}
	if err := t.patchNet(files); err != nil {
		return nil, err
	}
	if err := t.patchRuntime(); err != nil {
		return nil, err
	}
	if err := t.makeDirect(); err != nil {
		return nil, err
	}
	t.makeMarker()
	return t, nil
}

// releaseNet reads the files of package net, without tests.
func (t *tree) releaseNet() (map[string][]byte, error) {
	dir := filepath.Join(t.root, "net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGo, err)
	}
	files := make(map[string][]byte)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || e.IsDir() {
			continue
		}
		at, deleted := t.under.contentsOf(filepath.Join(dir, name))
		if deleted {
			continue
		}
		src, err := os.ReadFile(at)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGo, err)
		}
		files[name] = src
	}
	for _, hook := range hookFiles {
		if files[hook] != nil {
			return nil, fmt.Errorf("%w: %s has a file %s", ErrPatch, dir, hook)
		}
	}
	return files, nil
}

// contentsOf is where the contents of a file are.
func (o overlay) contentsOf(name string) (at string, deleted bool) {
	at, ok := o.Replace[name]
	switch {
	case !ok:
		return name, false
	case at == "":
		return "", true
	}
	return at, false
}

// makeSecondNet makes the second package net: that of the release, which direct sockets use.
func (t *tree) makeSecondNet(files map[string][]byte) error {
	for name, src := range files {
		own, err := withoutCgo(name, src)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPatch, err)
		}
		switch to := path.Join(homeNet, name); {
		case own == nil:
		case string(own) == string(src):
			t.same[to], _ = t.under.contentsOf(filepath.Join(t.root, "net", name))
		default:
			t.made[to] = own
		}
	}
	return nil
}

// checkPlace checks that package shm can be where it shall be.
func (t *tree) checkPlace() error {
	dir := filepath.Join(t.root, homeShm)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPatch, err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") {
			return fmt.Errorf("%w: %s already has that package", ErrPatch, dir)
		}
	}
	return nil
}

// hookFiles are the files that package net gets.
var hookFiles = []string{"exn.go", "exn_udp.go"}

// patchNet makes what is different in package net.
func (t *tree) patchNet(files map[string][]byte) error {
	used, err := linuxFiles(files)
	if err != nil {
		return err
	}
	made, err := patchNet(used)
	if err != nil {
		return err
	}
	for name, src := range made {
		t.made[path.Join("net", name)] = src
	}
	for _, name := range hookFiles {
		hook, err := std.ReadFile("std/net/" + name)
		if err != nil {
			return err
		}
		t.made[path.Join("net", name)] = []byte(strings.Replace(string(hook), "//go:build exngo", "//go:build linux", 1))
	}
	return nil
}

// schedulerFiles are those of package runtime that exn-go looks at.
var schedulerFiles = []string{"netpoll.go", "netpoll_epoll.go", "traceback.go"}

// patchRuntime makes what is different in package runtime.
func (t *tree) patchRuntime() error {
	files := make(map[string][]byte)
	for _, name := range schedulerFiles {
		at, _ := t.under.contentsOf(filepath.Join(t.root, "runtime", name))
		src, err := os.ReadFile(at)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPatch, err)
		}
		files[name] = src
	}
	made, calls, err := patchRuntime(files)
	if err != nil {
		return err
	}
	for name, src := range made {
		t.made[path.Join("runtime", name)] = src
	}
	return eachSource(std, "std/runtime", func(name string, src []byte) error {
		text := strings.Replace(string(src), "//go:build exngo", "//go:build linux", 1)
		t.made[path.Join("runtime", path.Base(name))] = []byte(strings.Replace(text, "internal/runtime/syscall/linux", calls, 1))
		return nil
	})
}

// makeDirect makes the packages of direct sockets.
func (t *tree) makeDirect() error {
	shim := make(map[string][]byte)
	err := eachSource(std, "std/unix", func(name string, src []byte) error {
		shim[name] = src
		t.made[path.Join(homeUnix, path.Base(name))] = src
		return nil
	})
	if err != nil {
		return err
	}
	names, err := exportedNames(shim)
	if err != nil {
		return err
	}
	return t.importAll(module+"/internal/godirect", names, make(map[string]bool))
}

// importAll makes a package of this module, and those that it imports.
func (t *tree) importAll(pkg string, shim, done map[string]bool) error {
	if done[pkg] {
		return nil
	}
	done[pkg] = true
	dir := strings.TrimPrefix(pkg, module+"/")
	entries, err := exnet.Sources.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the sources in exn-go: %w", err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() || strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := exnet.Sources.ReadFile(name)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".go") {
			var imports []string
			if src, imports, err = moveHome(name, src, shim); err != nil {
				return err
			}
			for _, i := range imports {
				if err := t.importAll(i, shim, done); err != nil {
					return err
				}
			}
		}
		if own, err := std.ReadFile(path.Join("std", path.Base(pkg), e.Name())); err == nil {
			src = []byte(strings.Replace(string(own), "//go:build exngo", "//go:build linux", 1))
		}
		t.made[path.Join(homePath(pkg), e.Name())] = src
	}
	return nil
}

// linuxFiles are those that a program for Linux has of package net's.
func linuxFiles(files map[string][]byte) (map[string][]byte, error) {
	linux := build.Default
	linux.GOOS, linux.GOARCH, linux.CgoEnabled, linux.BuildTags = "linux", "amd64", true, nil
	used := make(map[string][]byte)
	for name, src := range files {
		linux.OpenFile = openBytes(src)
		match, err := linux.MatchFile("net", name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPatch, err)
		}
		if match {
			used[name] = src
		}
	}
	return used, nil
}

// openBytes has go/build read src.
func openBytes(src []byte) func(string) (io.ReadCloser, error) {
	return func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(src)), nil }
}

// eachSource calls f for the files below dir that are no tests.
func eachSource(from fs.FS, dir string, f func(name string, src []byte) error) error {
	return fs.WalkDir(from, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") {
			return err
		}
		src, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return f(name, src)
	})
}

// makeMarker makes the file that has a program know what it was built with.
func (t *tree) makeMarker() {
	text := mark.Text(version.String() + " sources " + t.sourceNames()[:12])
	t.made[home+"/godirect/marker.go"] = fmt.Appendf(nil, "package godirect\n\nvar marker = %s\n", strconv.Quote(text))
}

// sourceNames names the contents of the files that were made.
func (t *tree) sourceNames() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t.made)) {
		fmt.Fprintf(h, "%q %d\n", name, len(t.made[name]))
		h.Write(t.made[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// contentSum names the tree: what is in it, and where it is.
func (t *tree) contentSum() string {
	h := sha256.New()
	fmt.Fprintln(h, t.sourceNames())
	for _, name := range slices.Sorted(maps.Keys(t.same)) {
		fmt.Fprintf(h, "%q %q\n", name, t.same[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.under.Replace)) {
		fmt.Fprintf(h, "%q %q\n", name, t.under.Replace[name])
	}
	fmt.Fprintf(h, "%q\n", t.root)
	return hex.EncodeToString(h.Sum(nil))
}

// setOldTime gives a file a time that is long ago, and that says what is in it. The go command
// has no index of a package with a file of the last two seconds, and go1.25's believes then that
// what is not on the disk is not in std; in the index it knows a file by its name, time and
// size.
func setOldTime(name string, src []byte) error {
	const first, span = 1e9, 1e8 // seconds, from 2001 on
	h := sha256.Sum256(src)
	at := time.Unix(first+int64(binary.LittleEndian.Uint32(h[:])%span), int64(binary.LittleEndian.Uint32(h[4:])%1e9))
	return os.Chtimes(name, at, at)
}

// writeTree has the tree in a directory of its own below cache, and returns the path of the
// file for -overlay. What is there already is left: its name says what is in it.
func (t *tree) writeTree(cache string) (string, error) {
	dir := filepath.Join(cache, t.contentSum()[:32])
	file := filepath.Join(dir, "overlay.json")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) // it has another name then
	all := overlay{Replace: maps.Clone(t.under.Replace)}
	if all.Replace == nil {
		all.Replace = make(map[string]string)
	}
	for name, src := range t.made {
		at := filepath.Join(temp, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, src, 0o644), setOldTime(at, src)); err != nil {
			return "", err
		}
		all.Replace[filepath.Join(t.root, filepath.FromSlash(name))] = filepath.Join(dir, filepath.FromSlash(name))
	}
	for name, at := range t.same {
		all.Replace[filepath.Join(t.root, filepath.FromSlash(name))] = at
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(temp, "overlay.json"), text, 0o644); err != nil {
		return "", err
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(temp, dir); err != nil {
		if _, there := os.Stat(file); there != nil {
			return "", err
		} // somebody else was faster
	}
	return file, nil
}

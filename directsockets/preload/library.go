package preload

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// sources are what the library is built from, a folder for each layer.
//
//go:embed segment conn fd hooks
var sources embed.FS

// Name is the library's file name.
const Name = "libexnds.so"

// installed is where a package puts the library.
const installed = "/usr/lib/exnet/" + Name

// Prepend puts a library in front of those of a value of LD_PRELOAD, which may have it
// already.
func Prepend(library, list string) string {
	others := strings.FieldsFunc(list, func(c rune) bool { return c == ' ' || c == ':' })
	others = slices.DeleteFunc(others, func(s string) bool { return s == library })
	return strings.Join(append([]string{library}, others...), ":")
}

// ErrCompiler says that the library is not installed and cannot be built. Install a C
// compiler, or name a library that was built elsewhere.
var ErrCompiler = errors.New("preload: the library is not installed, and there is no C compiler to build it")

// flags are those of the Makefile, without what only concerns warnings.
var flags = []string{"-std=gnu11", "-I.", "-O2", "-fexceptions", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec",
	"-fno-strict-aliasing", "-shared", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,--no-undefined"}

// Build returns the path of the library: beside the running program, in /usr/lib/exnet,
// or compiled from the sources that are embedded here, by $CC or cc, into the user's
// cache directory (root's: /var/cache/exnet). That is done once for each version and compiler; it takes some seconds.
//
// Concurrency: may be called at the same time by many processes.
func Build(ctx context.Context) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), Name); usable(path) {
			return path, nil
		}
	}
	if usable(installed) {
		return installed, nil
	}
	// The first place that there is.
	var errs []error
	for _, dir := range places() {
		path, err := build(ctx, dir)
		if !errors.Is(err, errPlace) {
			return path, err
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// errPlace says that a library cannot be put where it was to be.
var errPlace = errors.New("preload: no place for the library")

// places are the directories where it may be built. Root's is one that all can read:
// a program that root starts may become another user's before it executes the next.
func places() []string {
	temp := filepath.Join(os.TempDir(), fmt.Sprintf("exn-%d", os.Getuid()))
	if os.Geteuid() == 0 {
		return []string{"/var/cache/exnet", temp}
	}
	if base, err := os.UserCacheDir(); err == nil {
		return []string{filepath.Join(base, "exnet"), temp}
	}
	return []string{temp} // no home, as a service
}

// usable says whether path is a library that only root or this user can have written.
func usable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && trusted(info)
}

// trusted says whether nobody but root and this user can change what info is of.
func trusted(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Getuid()) && info.Mode().Perm()&0o022 == 0
}

// build returns the library in dir, which it makes if need be, compiled if it is not there.
func build(ctx context.Context, dir string) (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	files, hash, err := read(cc)
	if err != nil {
		return "", err
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return "", fmt.Errorf("%w: %w", errPlace, err)
	}
	// Somebody else's directory could have anything in it.
	if info, err := os.Lstat(dir); err != nil {
		return "", fmt.Errorf("%w: %w", errPlace, err)
	} else if !info.IsDir() || !trusted(info) {
		return "", fmt.Errorf("%w: %s can be written by others: remove it, or set XDG_CACHE_HOME", errPlace, dir)
	}
	path := filepath.Join(dir, strings.TrimSuffix(Name, ".so")+"-"+hash+".so")
	if usable(path) {
		return path, nil
	}
	if _, err := exec.LookPath(cc); err != nil {
		return "", fmt.Errorf("%w (%s): install one, or put %s into %s", ErrCompiler, cc, Name, filepath.Dir(installed))
	}
	temp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPlace, err)
	}
	defer os.RemoveAll(temp)
	if err := compile(ctx, cc, temp, files); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(temp, Name), path); err != nil {
		return "", fmt.Errorf("preload: %w", err)
	}
	return path, nil
}

// read returns the sources by name, and a hash of them and how they are compiled.
func read(cc string) (map[string][]byte, string, error) {
	files := make(map[string][]byte)
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %q\n", cc, flags)
	err := fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(name)
		files[name] = text
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("preload: %w", err)
	}
	return files, hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// compile builds the library in dir.
func compile(ctx context.Context, cc, dir string, files map[string][]byte) error {
	args := append([]string(nil), flags...)
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			return fmt.Errorf("preload: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return fmt.Errorf("preload: %w", err)
		}
		if strings.HasSuffix(name, ".c") {
			args = append(args, name)
		}
	}
	args = append(args, "-o", Name, "-ldl", "-lpthread")
	cmd := exec.CommandContext(ctx, cc, args...)
	cmd.Dir = dir
	// What the compiler would load or say is not to depend on the caller.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LD_PRELOAD=")
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("preload: %s cannot build the library: %w: %s", cc, err, first)
	}
	return os.Chmod(filepath.Join(dir, Name), 0o755)
}

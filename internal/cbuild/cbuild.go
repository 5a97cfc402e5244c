// Package cbuild builds a C program or library from embedded sources if it is not
// installed, so that go install needs nothing else.
//
// # Architecture
//
//	Build ─▶ beside the running program ─▶ /usr/lib/exnet ─▶ the cache: compiled once for each
//	                                                          version and compiler,
//	                                                          under a lock
//
// Build uses a file that it finds only if nobody but root and this user can have
// written it.
//
// # Concurrency
//
// All functions may be called at the same time, even by many processes.
package cbuild

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"exnet/internal/checksum"
	_ "exnet/internal/linux"
)

// Source is what a file is built from.
type Source struct {
	// Name is the file's name, such as libexnds.so.
	Name string
	// Files has the sources: those that end in .c are compiled.
	Files fs.FS
	// Shared has further ones, such as the headers of several libraries; nil: none.
	Shared fs.FS
	// Skip names files that are not compiled.
	Skip []string
	// Flags and Libs go before and after the sources in the compiler's command.
	Flags, Libs []string
}

// installed is where a package puts such files.
const installed = "/usr/lib/exnet"

var (
	// ErrCompiler says that the file is not installed and cannot be built. Install a C
	// compiler, or put a file there that was built elsewhere.
	ErrCompiler = errors.New("not installed, and there is no C compiler to build it")
	// ErrSource says that the compiler refuses the sources: a header or a library is missing.
	ErrSource = errors.New("cannot be built")
	// errPlace says that a file cannot be put where it was to be.
	errPlace = errors.New("no place for it")
)

// Build returns the path of the file: beside the running program, in /usr/lib/exnet, or compiled by
// $CC or cc, into the user's cache directory (root's: /var/cache/exnet). That is done once for each
// version and compiler; it takes some seconds, for which others that start meanwhile wait.
func (s Source) Build(ctx context.Context) (string, error) {
	if path := Installed(s.Name); path != "" {
		return path, nil
	}
	// The first place that there is.
	var errs []error
	for _, dir := range buildPlaces() {
		path, err := s.embeddedIn(ctx, dir)
		if !errors.Is(err, errPlace) {
			return path, err
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// knownPrefix begins the name of a note of what belongs to an executable file.
const knownPrefix = "known-"

// embeddedIn is BuildIn of what is embedded in this executable file, and does not change unless the
// file does. A note of what the file got before spares programs that live for milliseconds to read
// all sources.
func (s Source) embeddedIn(ctx context.Context, dir string) (string, error) {
	var exe syscall.Stat_t
	if os.Getenv("CC") != "" || syscall.Stat("/proc/self/exe", &exe) != nil || makePlace(dir) != nil {
		return s.BuildIn(ctx, dir)
	}
	note := dir + "/" + knownPrefix + s.Name
	for _, n := range [...]int64{int64(exe.Dev), int64(exe.Ino), exe.Size, exe.Mtim.Nano(), exe.Ctim.Nano()} {
		note += "-" + strconv.FormatInt(n, 36)
	}
	if path, err := os.ReadFile(note); err == nil && isUsable(string(path)) {
		return string(path), nil
	}
	path, err := s.BuildIn(ctx, dir)
	if err == nil {
		sweepKilled(dir)
		_ = os.WriteFile(note, []byte(path), 0o600) // else the next one reads the sources, too
	}
	return path, err
}

// Installed returns the path of a file of that name, which may have folders in it, beside the
// running program or in /usr/lib/exnet, "" if there is none.
func Installed(name string) string {
	dirs := []string{installed}
	if self, err := os.Executable(); err == nil {
		dirs = []string{filepath.Dir(self), installed}
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, name); isUsable(path) {
			return path
		}
	}
	return ""
}

// buildPlaces are the directories where it may be built. Root's is one that all can read:
// a program that root starts may become another user's before it executes the next.
func buildPlaces() []string {
	base, err := os.UserCacheDir()
	switch {
	case os.Geteuid() == 0:
		base = "/var/cache"
	case err != nil:
		base = "" // no home, as a service
	}
	return placesBelow(base)
}

// placesBelow are those of a user with this folder for caches. LD_PRELOAD cannot hold every path.
func placesBelow(base string) []string {
	temp := filepath.Join(os.TempDir(), fmt.Sprintf("exn-%d", os.Getuid()))
	if base == "" || strings.ContainsAny(base, " \t\n:") {
		return []string{temp}
	}
	return []string{filepath.Join(base, "exnet"), temp}
}

// isUsable says whether path is a file that only root or this user can have written.
func isUsable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && isTrusted(info)
}

// isTrusted says whether nobody but root and this user can change what info is of.
func isTrusted(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Getuid()) && info.Mode().Perm()&0o022 == 0
}

// BuildIn returns the path of the file in dir, which it makes if need be, compiled if it
// is not there.
func (s Source) BuildIn(ctx context.Context, dir string) (string, error) {
	path, err := s.buildIn(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.Name, err)
	}
	return path, nil
}

func (s Source) buildIn(ctx context.Context, dir string) (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	hash, err := s.hashSources(cc)
	if err != nil {
		return "", err
	}
	if err := makePlace(dir); err != nil {
		return "", err
	}
	ext := filepath.Ext(s.Name)
	path := filepath.Join(dir, strings.TrimSuffix(s.Name, ext)+"-"+hash+ext)
	if isUsable(path) {
		return path, nil
	}
	if _, err := exec.LookPath(cc); err != nil {
		return "", fmt.Errorf("%w (%s): install one, or put %s into %s", ErrCompiler, cc, s.Name, installed)
	}
	// Of several that start at once one builds, and the others wait for it.
	done, err := waitTurn(ctx, path+lockSuffix)
	if err != nil {
		return "", err
	}
	defer done()
	if isUsable(path) {
		return path, nil
	}
	sweepKilled(dir)
	temp, err := os.MkdirTemp(dir, workPrefix)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPlace, err)
	}
	defer os.RemoveAll(temp)
	if err := s.compileFile(ctx, cc, temp); err != nil {
		return "", err
	}
	return path, os.Rename(filepath.Join(temp, s.Name), path)
}

// makePlace makes a directory that only root and this user can write to.
func makePlace(dir string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("%w: %w", errPlace, err)
	}
	// Somebody else's directory could have anything in it.
	if info, err := os.Lstat(dir); err != nil {
		return fmt.Errorf("%w: %w", errPlace, err)
	} else if !info.IsDir() || !isTrusted(info) {
		return fmt.Errorf("%w: %s can be written by others: remove it, or set XDG_CACHE_HOME", errPlace, dir)
	}
	return nil
}

// Place returns the directory in which Build builds, which only root and this user can write to,
// "" if there is none.
func Place() string {
	for _, dir := range buildPlaces() {
		if makePlace(dir) == nil {
			return dir
		}
	}
	return ""
}

// lockSuffix ends the name of the file that who builds has locked.
const lockSuffix = ".lock"

// lockPause is how often a lock is tried.
const lockPause = 20 * time.Millisecond

// waitTurn waits until the caller is the only one that builds what the file name is the lock of,
// until done, or until its process dies. done removes the file, so a lock of a file that is not
// there any more is none.
func waitTurn(ctx context.Context, name string) (done func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errPlace, err)
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			own, err := f.Stat()
			if there, gone := os.Lstat(name); err == nil && gone == nil && os.SameFile(own, there) {
				return func() {
					os.Remove(name)
					f.Close()
				}, nil
			}
		}
		f.Close()
		switch {
		case err == nil: // it was removed before it was locked
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, fmt.Errorf("%w: %w", errPlace, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

// workPrefix begins the name of a folder that a build works in.
const workPrefix = "build-"

// sweepKilled removes the folders of builds that were killed: those an hour old. Notes as old may
// be of files that are gone; the others are made again.
func sweepKilled(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		swept := strings.HasPrefix(e.Name(), workPrefix) || strings.HasPrefix(e.Name(), knownPrefix)
		if info, err := e.Info(); swept && err == nil && time.Since(info.ModTime()) > time.Hour {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// hashSources returns a checksum of the sources and how they are compiled. Nobody chooses what is
// in it, and every exn-run computes it: crypto would make exn-run larger, FNV later.
func (s Source) hashSources(cc string) (string, error) {
	sum := checksum.Of(fmt.Appendf(nil, "%s %q %q %q", cc, s.Flags, s.Libs, s.Skip))
	err := s.eachFile(func(name string, text []byte) error {
		sum = checksum.Add(checksum.Add(sum, []byte(name)), text)
		return nil
	})
	return fmt.Sprintf("%016x", sum), err
}

// eachFile calls f for every file of the source.
func (s Source) eachFile(f func(name string, text []byte) error) error {
	for _, files := range []fs.FS{s.Files, s.Shared} {
		if files == nil {
			continue
		}
		if err := eachFile(files, ".", func(name string) error {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				return err
			}
			return f(name, text)
		}); err != nil {
			return err
		}
	}
	return nil
}

// eachFile calls f for every file below name, or for name if that is a file, in the order in
// which files lists them: an embed.FS does so by name.
func eachFile(files fs.FS, name string, f func(name string) error) error {
	d, err := files.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	dir, ok := d.(fs.ReadDirFile)
	if !ok {
		return f(name)
	}
	entries, err := dir.ReadDir(-1)
	for i := 0; i < len(entries) && err == nil; i++ {
		err = eachFile(files, path.Join(name, entries[i].Name()), f)
	}
	return err
}

// compileFile builds the file in dir.
func (s Source) compileFile(ctx context.Context, cc, dir string) error {
	var names []string
	err := s.eachFile(func(name string, text []byte) error {
		if strings.HasSuffix(name, ".c") && !slices.Contains(s.Skip, name) {
			names = append(names, name)
		}
		return errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(dir, name), text, 0o600))
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	c := Command{Dir: dir, Compiler: cc, Flags: s.Flags, Files: names, Libs: s.Libs}
	if err := c.Run(ctx, filepath.Join(dir, s.Name)); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(dir, s.Name), 0o755)
}

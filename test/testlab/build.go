package testlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// prefix begins the names of the directories that Build and Shared make.
const prefix = "exnet-test-"

// sweep removes those that killed tests have left: the ones a day old.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // no bad pattern
	for _, dir := range left {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(dir)
		}
	}
}

// shared is where the programs are that Into has built, once for all tests of a process.
var shared struct {
	sync.Mutex
	dir  string            // "": each call builds anew
	have map[string]string // the path of what is built
}

// Shared runs the tests of a package, and has Into build each program once for all of them: to link
// one costs seconds. Call it in TestMain.
func Shared(m *testing.M) (status int, err error) {
	sweep()
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return 0, err
	}
	shared.dir, shared.have = dir, make(map[string]string)
	defer os.RemoveAll(dir)
	return m.Run(), nil
}

// Into builds programs into a directory, by go build in this one: packages, or files of one. With
// Shared it may be that what is there is a file that others have a link to: do not write to it.
func Into(dir string, programs ...string) error {
	shared.Lock()
	defer shared.Unlock()
	if shared.dir == "" {
		return build(dir, programs...)
	}
	for _, program := range programs {
		path := shared.have[program]
		if path == "" {
			own, err := os.MkdirTemp(shared.dir, "")
			if err != nil {
				return err
			}
			if err := build(own, program); err != nil {
				return err
			}
			files, err := os.ReadDir(own)
			if err != nil || len(files) != 1 {
				return fmt.Errorf("go build %s makes %d files: %w", program, len(files), err)
			}
			path = filepath.Join(own, files[0].Name())
			shared.have[program] = path
		}
		if err := os.Link(path, filepath.Join(dir, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}

func build(dir string, programs ...string) error {
	argv := append([]string{"build", "-o", dir + "/"}, programs...)
	if out, err := exec.Command("go", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", programs, err, out)
	}
	return nil
}

// Build builds commands of this module (exn-run, exn-tun, ...) into a new directory, from which
// all users can run them. The caller removes it.
func Build(commands ...string) (dir string, err error) {
	sweep()
	dir, err = os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	var programs []string
	for _, name := range commands {
		programs = append(programs, "exnet/cmd/"+name)
	}
	return dir, Into(dir, programs...)
}

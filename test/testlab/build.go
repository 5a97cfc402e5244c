package testlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// prefix begins the names of the directories that Build makes.
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
	argv := []string{"build", "-o", dir}
	for _, name := range commands {
		argv = append(argv, "exnet/cmd/"+name)
	}
	if out, err := exec.Command("go", argv...).CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build %v: %w\n%s", commands, err, out)
	}
	return dir, nil
}

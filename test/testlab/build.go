package testlab

import (
	"fmt"
	"os"
	"os/exec"
)

// Build builds commands of this module (exn-run, exn-tun, ...) into a new directory, from which
// all users can run them. The caller removes it.
func Build(commands ...string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "exnet-test-")
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

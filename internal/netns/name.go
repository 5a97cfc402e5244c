package netns

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// namedDir is the directory of "ip netns" for its namespaces.
const namedDir = "/run/netns"

// NamedPath returns the path in namedDir of the namespace at path, "" if it has no name there
// or path cannot be read.
func NamedPath(path string) string {
	var want, st unix.Stat_t
	if unix.Stat(path, &want) != nil {
		return ""
	}
	entries, err := os.ReadDir(namedDir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		named := filepath.Join(namedDir, e.Name())
		if unix.Stat(named, &st) == nil && st.Ino == want.Ino && st.Dev == want.Dev {
			return named
		}
	}
	return ""
}

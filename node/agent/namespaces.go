package agent

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"exnet/internal/netns"
	"exnet/node/control"
	"exnet/node/rpc/caller"
)

// maxRead bounds how much of a process's environment and of its mappings is looked at, in bytes.
const maxRead = 1 << 20

// Variables by which a process asks: the library that is loaded first, and one of its own for
// programs that exn-go has built.
var (
	preloadVariable = []byte("LD_PRELOAD=")
	libraryName     = []byte("libexnds")
	askVariable     = []byte("EXNET=1")
)

// namespaceOf reads the inode of a namespace from a link such as net:[4026531840].
func namespaceOf(link string) (uint64, bool) {
	text, err := os.Readlink(link)
	if err != nil {
		return 0, false
	}
	number, ok := strings.CutPrefix(text, "net:[")
	inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
	return inode, ok && err == nil
}

// shortID is how many digits of a container's ID people write.
const shortID = 12

// readProc returns the first maxRead bytes of a file in /proc; none: the process has gone, or is
// not for us.
func readProc(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	all, _ := io.ReadAll(io.LimitReader(f, maxRead)) // what there is
	return all
}

// containerOf is the ID of a process's container, "": it is in none.
func containerOf(proc string, pid int) string {
	return caller.HomeIn(readProc(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))).Container
}

// whoseOf names the container of a process: by its cgroup and its runtime, or else its namespace's
// name in /run/netns, or its number.
func whoseOf(proc string, pid int) control.Whose {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if id := containerOf(proc, pid); id != "" {
		return control.Whose{Container: id[:shortID], Name: nameOf(proc, filepath.Join(proc, "1/root"), pid, id)}
	}
	if path := netns.NamedPath(filepath.Join(dir, "ns/net")); path != "" {
		return control.Whose{Container: filepath.Base(path)}
	}
	inode, _ := namespaceOf(filepath.Join(dir, "ns/net"))
	return control.Whose{Container: "net:[" + strconv.FormatUint(inode, 10) + "]"}
}

package exncni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/emp"
)

// record describes what the plugin has attached: the node of one interface of a container.
type record struct {
	Network     string        `json:"network"`
	ContainerID string        `json:"containerID"`
	Interface   string        `json:"ifname"`
	NetNS       string        `json:"netns"`
	Dir         string        `json:"dir"` // of the fabric
	PID         int           `json:"pid"` // of exn-tun; 0: it was not started yet
	Node        fabric.NodeID `json:"node"`
	Token       emp.Token     `json:"token"` // 0: the node was not up yet
}

const recordSuffix = ".json"

// recordPath returns the file of an interface's record. The CNI library has checked the names:
// they have no slash, and the container's has no comma.
func (c *config) recordPath(container, ifname string) string {
	return filepath.Join(c.Records, c.Name, container+","+ifname+recordSuffix)
}

// writeNew writes a new record. It returns fs.ErrExist if the interface is attached already.
func (r *record) writeNew(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		os.Remove(filepath.Dir(path)) // fails while it has other records
		return err
	}
	err = errors.Join(json.NewEncoder(f).Encode(r), f.Close())
	if err != nil {
		os.Remove(path)
	}
	return err
}

// updateFile replaces a record as a whole.
func (r *record) updateFile(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

// readRecord returns the record of a file, nil if the file does not exist.
func readRecord(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENAMETOOLONG) { // add has not made such a name
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w: remove it, and end the node with exn-tun down --node", path, err)
	}
	return &r, nil
}

// removeRecord removes a record and what belongs to it, and the network's directory
// with its last one.
func removeRecord(path string) error {
	for _, name := range []string{logPath(path), path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	os.Remove(filepath.Dir(path)) // fails while it has other records
	return nil
}

// logPath returns the name of the file that exn-tun's messages go to.
func logPath(path string) string { return strings.TrimSuffix(path, recordSuffix) + ".log" }

// recordPaths returns the paths of all records of a network.
func (c *config) recordPaths() ([]string, error) {
	dir := filepath.Join(c.Records, c.Name)
	names, err := fs.Glob(os.DirFS(dir), "*"+recordSuffix) // dir may have a * or [ in its name
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, err
}

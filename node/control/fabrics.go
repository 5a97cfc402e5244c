package control

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"exnet/fabric"
	"exnet/fabric/emp"
)

// Fabric is a fabric of this host.
type Fabric struct {
	Fabric string          `json:"fabric"`
	Dir    string          `json:"dir"`
	Nodes  []fabric.NodeID `json:"nodes"`           // that are up
	Error  string          `json:"error,omitempty"` // why it cannot be read
}

// Fabrics returns the fabrics of root and of the caller that have nodes or cannot be read.
func Fabrics() ([]Fabric, error) { return fabricsIn(fabricBases()) }

// fabricBases returns the directories that hold the directories of fabrics.
func fabricBases() (bases []string) {
	bases = append(bases, "/run/exn")
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		bases = append(bases, filepath.Join(dir, "exn"))
	}
	return bases
}

// fabricsIn returns the fabrics that have nodes or cannot be read.
func fabricsIn(bases []string) ([]Fabric, error) {
	all := []Fabric{}
	for _, base := range bases {
		entries, err := os.ReadDir(base)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() || e.Name() == "ds" || emp.CheckName(e.Name()) != nil { // ds: the brokers' sockets
				continue
			}
			f := Fabric{Fabric: e.Name(), Dir: filepath.Join(base, e.Name()), Nodes: []fabric.NodeID{}}
			nodes, err := Nodes(f.Dir)
			if err != nil {
				f.Error = "cannot be read: permission denied"
				if !errors.Is(err, fs.ErrPermission) {
					f.Error = err.Error()
				}
			}
			for _, n := range nodes {
				f.Nodes = append(f.Nodes, n.Node)
			}
			if len(f.Nodes) > 0 || f.Error != "" {
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// Holder returns the node whose interface has the name in the network namespace at path ns, and
// the directory of its fabric: dir, or any of Fabrics. It is false if there is none that answers.
func Holder(dir, ns, name string) (in string, node fabric.NodeID, ok bool) {
	dirs := []string{dir}
	all, _ := Fabrics() // what cannot be read holds nothing that can be named
	for _, f := range all {
		dirs = append(dirs, f.Dir)
	}
	for _, d := range dirs {
		if n, ok := HolderIn(d, ns, name); ok {
			return d, n.Node, true
		}
	}
	return "", 0, false
}

// HolderIn is Holder for the fabric of one directory.
func HolderIn(dir, ns, name string) (n emp.Description, ok bool) {
	place, err := os.Stat(ns)
	if err != nil {
		return n, false
	}
	nodes, _ := Nodes(dir)
	for _, n := range nodes {
		s, err := StatusOf(dir, n)
		if err != nil || s.Interface.Name != name {
			continue
		}
		if at, err := os.Stat(s.NetNS); err == nil && os.SameFile(at, place) {
			return n, true
		}
	}
	return n, false
}

// StatusOf returns the status of a node that Nodes returned.
func StatusOf(dir string, n emp.Description) (*Status, error) {
	c, err := Dial(dir, n)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Status()
}

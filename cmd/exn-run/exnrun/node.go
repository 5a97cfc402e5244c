package exnrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/node/control"
)

// enterNode makes this process one of the network namespace of a node: it runs
// exn-run anew there, with the same arguments, unless it is there already.
func enterNode(o options) error {
	path, err := namespacePath(o)
	if err != nil {
		return err
	}
	ns, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // not to wait where it is a FIFO
	if err != nil {
		return fmt.Errorf("node %s: %w: give the ID of a node of fabric %s, or the name or path of a network namespace", o.node, err, o.fabric)
	}
	defer ns.Close()
	there, err := ns.Stat()
	if err != nil {
		return err
	}
	here, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	if os.SameFile(here, there) {
		return nil
	}
	runtime.LockOSThread() // exec makes the process one of this thread's namespace
	defer runtime.UnlockOSThread()
	err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("node %s: entering another network namespace needs root (CAP_SYS_ADMIN): run as root, or in that namespace, without --node", o.node)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("node %s: %s is not a network namespace: give the ID of a node of fabric %s, or the name or path of one", o.node, path, o.fabric)
	case err != nil:
		return fmt.Errorf("node %s: entering %s: %w", o.node, path, err)
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// namespacePath returns the path of the namespace that --node means: a node's ID,
// or what exn-tun up --netns takes.
func namespacePath(o options) (string, error) {
	id, err := strconv.ParseUint(o.node, 10, 16)
	if err != nil {
		if strings.Contains(o.node, "/") {
			return o.node, nil
		}
		return filepath.Join("/run/netns", o.node), nil
	}
	dir := o.dir
	if dir == "" {
		if dir, err = emp.DefaultDir(o.fabric); err != nil {
			return "", err
		}
	}
	nodes, err := control.Nodes(dir)
	if err != nil {
		return "", err
	}
	for _, n := range nodes {
		if n.Node != fabric.NodeID(id) {
			continue
		}
		s, err := control.StatusOf(dir, n)
		if err != nil {
			return "", err
		}
		return s.NetNS, nil
	}
	return "", fmt.Errorf("node %d is not running in fabric %s: %s", id, o.fabric, whereElse(fabric.NodeID(id)))
}

// whereElse says in which fabrics a node runs.
func whereElse(n fabric.NodeID) string {
	all, _ := control.Fabrics() // what cannot be read is not offered
	for _, f := range all {
		if slices.Contains(f.Nodes, n) {
			return fmt.Sprintf("there is one in fabric %s, for --fabric %[1]s", f.Fabric)
		}
	}
	return "start it with exn-tun up"
}

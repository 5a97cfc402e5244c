package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits for names of containers: how many bytes, and how many processes lie between a container's
// and the one that its runtime keeps beside it.
const (
	maxName    = 128
	maxParents = 64
)

// nameOf finds the name that a runtime has for a container, of which a process is given and the
// full ID; "": it has none, or keeps it somewhere else. root is the host's root directory.
func nameOf(proc, root string, pid int, id string) string {
	name := conmonName(proc, pid, id)
	if name == "" {
		name = dockerName(root, id)
	}
	if name == "" {
		name = containerdName(root, id)
	}
	name = strings.ToValidUTF8(name, "?")
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}

// conmonName looks for the monitor that podman and CRI-O keep for a container, among the processes
// above one of it: conmon -c ID -n NAME. One in a PID namespace of its own is a container's.
func conmonName(proc string, pid int, id string) string {
	own, err := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	if err != nil {
		return ""
	}
	for range maxParents {
		if pid = parentOf(proc, pid); pid <= 0 {
			return ""
		}
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if string(bytes.TrimSpace(readProc(filepath.Join(dir, "comm")))) != "conmon" {
			continue
		}
		args := strings.Split(string(readProc(filepath.Join(dir, "cmdline"))), "\x00")
		if in, err := os.Readlink(filepath.Join(dir, "ns/pid")); err == nil && in == own && argAfter(args, "-c") == id {
			return podName(argAfter(args, "-n"))
		}
	}
	return ""
}

// podName is a container's name as containerdName has it, of one that CRI-O has made up of its
// parts, none of which has such a sign: k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT. Others stay as
// they are.
func podName(name string) string {
	if part := strings.Split(name, "_"); len(part) == 6 && part[0] == "k8s" {
		return strings.Join([]string{part[3], part[2], part[1]}, "/")
	}
	return name
}

// argAfter is the argument that follows a flag.
func argAfter(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// parentOf reads a process's parent; 0: it has none, or is gone.
func parentOf(proc string, pid int) int {
	f := statFields(filepath.Join(proc, strconv.Itoa(pid)))
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(f[1]))
	return parent
}

// dockerName reads what Docker knows of a container.
func dockerName(root, id string) string {
	var c struct{ Name string }
	_ = json.Unmarshal(readProc(filepath.Join(root, "var/lib/docker/containers", id, "config.v2.json")), &c) // or it is not Docker's
	return strings.TrimPrefix(c.Name, "/")
}

// containerdName reads the annotations that a kubelet's containers have in containerd.
func containerdName(root, id string) string {
	all, err := filepath.Glob(filepath.Join(root, "run/containerd/io.containerd.runtime.v2.task/*", id, "config.json"))
	if err != nil || len(all) != 1 {
		return ""
	}
	var c struct {
		Annotations map[string]string `json:"annotations"`
	}
	_ = json.Unmarshal(readProc(all[0]), &c) // or it has none
	const prefix = "io.kubernetes.cri."
	var parts []string
	for _, key := range []string{"sandbox-namespace", "sandbox-name", "container-name"} {
		if part := c.Annotations[prefix+key]; part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

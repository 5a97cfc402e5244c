package exntun

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/node"
)

// nodeEnviron returns the variables for a program on the i-th node, from 0: its own addresses and
// those of the other nodes.
func (s *session) nodeEnviron(i int) []string {
	next := (i + 1) % s.o.nodes
	var peers, peers6 []string
	for k := range s.o.nodes {
		if k != i {
			peers = append(peers, node.Addr4(k).Addr().String())
			peers6 = append(peers6, node.Addr6(k).Addr().String())
		}
	}
	env := []string{
		fmt.Sprintf("EXN_NODE=%d", 1+i),
		fmt.Sprintf("EXN_NODES=%d", s.o.nodes),
		"EXN_IF=" + s.lab.Cluster.Nodes[i].Device.Name(),
		fmt.Sprintf("EXN_ADDR=%v", node.Addr4(i).Addr()),
		fmt.Sprintf("EXN_ADDR6=%v", node.Addr6(i).Addr()),
		fmt.Sprintf("EXN_PEER=%v", node.Addr4(next).Addr()),
		fmt.Sprintf("EXN_PEER6=%v", node.Addr6(next).Addr()),
		"EXN_PEERS=" + strings.Join(peers, " "),
		"EXN_PEERS6=" + strings.Join(peers6, " "),
		fmt.Sprintf("EXN_BROADCAST=%v", lab.BroadcastAddr()),
	}
	for k := range s.o.nodes {
		env = append(env, fmt.Sprintf("EXN_NS%d=%s", 1+k, s.lab.Cluster.Namespace(k).Path()))
	}
	return env
}

// userShell returns the user's shell with a prompt that says where it is.
func (s *session) userShell() (*exec.Cmd, error) {
	name := os.Getenv("SHELL")
	if name == "" {
		name = "/bin/sh"
	}
	hint := fmt.Sprintf("(exn node %d) ", s.o.in)
	cmd := exec.Command(name)
	if filepath.Base(name) != "bash" {
		cmd.Env = []string{"PS1=" + hint + "$ "} // for sh; other shells set their own prompt
		return cmd, nil
	}
	// bash reads the user's settings first, because they set the prompt. It reads from a pipe:
	// a file would have to be removed.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := fmt.Fprintf(w, "[ -r ~/.bashrc ] && . ~/.bashrc\nPS1='%s'\"$PS1\"\n", hint); err != nil {
		r.Close()
		return nil, err
	}
	cmd.Args = append(cmd.Args, "--rcfile", "/dev/fd/3")
	cmd.ExtraFiles = []*os.File{r}
	return cmd, nil
}

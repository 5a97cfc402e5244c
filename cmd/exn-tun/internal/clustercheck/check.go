package clustercheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Namespace is where the pods are.
const Namespace = "exnet-check"

// Times of a check.
const (
	lookTime = 500 * time.Millisecond
	// tidyTime is how long the end may take, after the check was interrupted, too.
	tidyTime = 30 * time.Second
)

// Config configures a check.
type Config struct {
	// Image is that of packaging/Containerfile, as the cluster knows it.
	Image string
	// Within is how long the pods may take, servers and clients each.
	Within time.Duration
	// Kubectl calls kubectl with arguments and an input, and returns what it prints.
	Kubectl func(ctx context.Context, input []byte, args ...string) ([]byte, error)
	// Say is told what is being done. It must not be nil.
	Say func(line string)
}

// Result is what was found between two nodes.
type Result struct {
	Client  string `json:"client"` // the node of the client, and that of the server
	Server  string `json:"server"`
	OK      bool   `json:"ok"` // on one node: it is direct; else: it works
	Problem string `json:"problem,omitempty"`
	Outcome
}

// Command is a Config.Kubectl that runs a program.
func Command(kubectl string) func(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	return func(ctx context.Context, input []byte, args ...string) ([]byte, error) {
		c := exec.CommandContext(ctx, kubectl, args...)
		c.Stdin = bytes.NewReader(input)
		var said bytes.Buffer
		c.Stderr = &said
		out, err := c.Output()
		if err != nil && ctx.Err() == nil {
			if text := strings.TrimSpace(said.String()); text != "" {
				err = errors.New(text[strings.LastIndexByte(text, '\n')+1:]) // what comes before is kubectl's log
			}
			err = fmt.Errorf("%s %s: %w", kubectl, args[0], err)
		}
		return out, err
	}
}

// Check tries all nodes. An error: nothing could be tried.
func Check(ctx context.Context, cfg Config) (all []Result, err error) {
	out, err := cfg.Kubectl(ctx, nil, "get", "nodes", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list nodeList
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("kubectl get nodes: %w", err)
	}
	var nodes []node
	for _, n := range list.nodes() {
		if n.why != "" {
			all = append(all, Result{Client: n.name, Server: n.name, Problem: n.why})
		} else {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return all, nil
	}
	if _, err := cfg.Kubectl(ctx, nil, "create", "namespace", Namespace); err != nil {
		if strings.Contains(err.Error(), "AlreadyExists") {
			return nil, fmt.Errorf("namespace %s is there already: another check runs, or one was killed (kubectl delete namespace %s)", Namespace, Namespace)
		}
		return nil, err
	}
	defer func() {
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
		defer cancel()
		_, tidyErr := cfg.Kubectl(tidy, nil, "delete", "namespace", Namespace, "--wait=false")
		err = errors.Join(err, tidyErr)
	}()
	found, err := cfg.pairs(ctx, nodes)
	return append(found, all...), err
}

// pairs tries nodes that offer direct sockets: each with itself, and with the next one.
func (cfg Config) pairs(ctx context.Context, nodes []node) (all []Result, err error) {
	var servers []object
	for i, n := range nodes {
		servers = append(servers, serverPod(i, n.label, cfg.Image))
	}
	cfg.Say(fmt.Sprintf("starting a server on each of %d nodes", len(nodes)))
	states, err := cfg.startPods(ctx, servers, func(s podState) bool { return s.phase == "Running" && s.ip != "" || s.phase == "Failed" })
	if err != nil {
		return nil, err
	}
	type try struct{ name, client, server string }
	var clients []object
	var tries []try
	for i, n := range nodes {
		at := states[server+"-"+strconv.Itoa(i)]
		if at.phase != "Running" {
			all = append(all, Result{Client: n.name, Server: n.name, Problem: "the server does not run: " + at.problem()})
			continue
		}
		from := []struct {
			role string
			node node
		}{{near, n}}
		if len(nodes) > 1 {
			from = append(from, struct {
				role string
				node node
			}{far, nodes[(i+1)%len(nodes)]})
		}
		for _, f := range from {
			clients = append(clients, clientPod(i, f.role, f.node.label, cfg.Image, at.ip))
			tries = append(tries, try{f.role + "-" + strconv.Itoa(i), f.node.name, n.name})
		}
	}
	if len(clients) == 0 {
		return all, nil
	}
	cfg.Say(fmt.Sprintf("connecting %d clients", len(clients)))
	if states, err = cfg.startPods(ctx, clients, func(s podState) bool { return s.phase == "Succeeded" || s.phase == "Failed" }); err != nil {
		return nil, err
	}
	for _, t := range tries {
		all = append(all, resultOf(t.client, t.server, states[t.name]))
	}
	return all, nil
}

// resultOf reads what a client has left.
func resultOf(client, server string, s podState) Result {
	r := Result{Client: client, Server: server}
	switch err := json.Unmarshal([]byte(s.message), &r.Outcome); {
	case s.phase != "Succeeded" && s.message != "":
		r.Outcome, r.Problem = Outcome{}, s.message
	case s.phase != "Succeeded":
		r.Problem = "the client does not run: " + s.problem()
	case err != nil:
		r.Problem = fmt.Sprintf("the client said %q", s.message)
	default:
		r.OK = r.Direct || client != server
	}
	return r
}

// problem says why a pod does not run.
func (s podState) problem() string {
	switch {
	case s.why != "":
		return s.why
	case s.message != "":
		return s.message
	case s.phase != "":
		return "it is " + strings.ToLower(s.phase)
	}
	return "it is not there"
}

// startPods starts pods, and waits until all of them are as far as they should be, or for
// cfg.Within.
func (cfg Config) startPods(ctx context.Context, pods []object, far func(podState) bool) (map[string]podState, error) {
	input, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": pods})
	if err != nil {
		return nil, err
	}
	if _, err := cfg.Kubectl(ctx, input, "apply", "-n", Namespace, "-f", "-"); err != nil {
		return nil, err
	}
	for end := time.Now().Add(cfg.Within); ; {
		out, err := cfg.Kubectl(ctx, nil, "get", "pods", "-n", Namespace, "-o", "json")
		if err != nil {
			return nil, err
		}
		var list podList
		if err := json.Unmarshal(out, &list); err != nil {
			return nil, fmt.Errorf("kubectl get pods: %w", err)
		}
		states, missing := list.states(), 0
		for _, p := range pods {
			name, _ := p["metadata"].(object)["name"].(string)
			if !far(states[name]) {
				missing++
			}
		}
		if missing == 0 || time.Now().After(end) {
			return states, nil
		}
		select {
		case <-time.After(lookTime):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

package clustercheck_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/exn-tun/internal/clustercheck"
)

// cluster is a kubectl of a cluster without pods that run: each is at once what outcome says.
type cluster struct {
	nodes string
	// outcome is the status of a pod.
	outcome func(name string) string
	// taken: the namespace is there.
	taken bool

	pods  []string
	calls []string
}

func (c *cluster) kubectl(_ context.Context, input []byte, args ...string) ([]byte, error) {
	c.calls = append(c.calls, strings.Join(args[:2], " "))
	switch strings.Join(args[:2], " ") {
	case "get nodes":
		return []byte(c.nodes), nil
	case "create namespace":
		if c.taken {
			return nil, errors.New("kubectl create: Error from server (AlreadyExists)")
		}
	case "apply -n":
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
			}
		}
		if err := json.Unmarshal(input, &list); err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			c.pods = append(c.pods, p.Metadata.Name)
		}
	case "get pods":
		var items []string
		for _, name := range c.pods {
			items = append(items, fmt.Sprintf(`{"metadata": {"name": %q}, "status": %s}`, name, c.outcome(name)))
		}
		return []byte(`{"items": [` + strings.Join(items, ",") + `]}`), nil
	}
	return nil, nil
}

// nodesOf is kubectl get nodes: each offers so many devices; -1: it is not ready.
func nodesOf(devices ...int) string {
	var items []string
	for i, n := range devices {
		ready := "True"
		if n < 0 {
			ready = "False"
		}
		items = append(items, fmt.Sprintf(`{"metadata": {"name": "n%d", "labels": {"kubernetes.io/hostname": "h%d"}},
			"status": {"allocatable": {"exnet.io/direct": "%d"}, "conditions": [{"type": "Ready", "status": %q}]}}`, i, i, max(n, 0), ready))
	}
	return `{"items": [` + strings.Join(items, ",") + `]}`
}

const running = `{"phase": "Running", "podIP": "10.0.0.7"}`

// succeeded is the status of a client that has left an outcome.
func succeeded(o clustercheck.Outcome) string {
	text, _ := json.Marshal(o)
	return fmt.Sprintf(`{"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "message": %q}}}]}`, text)
}

func TestCheck(t *testing.T) {
	direct := succeeded(clustercheck.Outcome{Direct: true, RoundTrip: 2, TCP: 40})
	tcp := succeeded(clustercheck.Outcome{Reason: "no broker"})
	by := func(server, near, far string) func(string) string {
		return func(name string) string {
			switch {
			case strings.HasPrefix(name, "server"):
				return server
			case strings.HasPrefix(name, "near"):
				return near
			}
			return far
		}
	}
	for _, tt := range []struct {
		name    string
		nodes   string
		outcome func(string) string
		want    []string // client, server, whether it is in order, and part of the problem or the reason
	}{
		{"all direct", nodesOf(1024, 1024), by(running, direct, tcp), []string{"n0 n0 true ", "n1 n0 true no broker", "n1 n1 true ", "n0 n1 true no broker"}},
		{"one node", nodesOf(1), by(running, direct, ""), []string{"n0 n0 true "}},
		{"near stays on TCP", nodesOf(1), by(running, tcp, ""), []string{"n0 n0 false no broker"}},
		{"no agent on one", nodesOf(1024, 0), by(running, direct, ""), []string{"n0 n0 true ", "n1 n1 false does its device plugin run"}},
		{"not ready", nodesOf(-1), by("", "", ""), []string{"n0 n0 false not ready"}},
		{"no image", nodesOf(1), by(`{"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}`, "", ""),
			[]string{"n0 n0 false ErrImagePull: no such image"}},
		{"no room", nodesOf(1), by(`{"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}`, "", ""),
			[]string{"n0 n0 false 0/1 nodes are available"}},
		{"refused", nodesOf(1), by(running, `{"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1, "message": "connection refused"}}}]}`, ""),
			[]string{"n0 n0 false connection refused"}},
		{"garbage", nodesOf(1), by(running, `{"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"message": "x"}}}]}`, ""),
			[]string{`n0 n0 false the client said "x"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &cluster{nodes: tt.nodes, outcome: tt.outcome}
			all, err := clustercheck.Check(t.Context(), clustercheck.Config{Image: "i", Kubectl: c.kubectl, Say: func(string) {}})
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != len(tt.want) {
				t.Fatalf("got %+v, want %q", all, tt.want)
			}
			for i, r := range all {
				want := strings.SplitN(tt.want[i], " ", 4)
				got := fmt.Sprintf("%s %s %v", r.Client, r.Server, r.OK)
				if got != strings.Join(want[:3], " ") || !strings.Contains(r.Problem+r.Reason, want[3]) {
					t.Errorf("got %+v, want %q", r, tt.want[i])
				}
			}
			if made := slices.Contains(c.calls, "create namespace"); made != slices.Contains(c.calls, "delete namespace") {
				t.Errorf("the namespace was made: %v, calls %q", made, c.calls)
			}
		})
	}
}

// Whoever finds the namespace there is told, and it stays. After an interruption it goes.
func TestNamespace(t *testing.T) {
	c := &cluster{nodes: nodesOf(1), taken: true}
	cfg := clustercheck.Config{Kubectl: c.kubectl, Say: func(string) {}}
	if _, err := clustercheck.Check(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "kubectl delete namespace exnet-check") {
		t.Errorf("got %v", err)
	}
	if slices.Contains(c.calls, "delete namespace") {
		t.Error("it deleted a namespace that it had not made")
	}

	ctx, stop := context.WithCancel(t.Context())
	c = &cluster{nodes: nodesOf(1), outcome: func(string) string { stop(); return `{"phase": "Pending"}` }}
	cfg.Kubectl, cfg.Within = c.kubectl, time.Hour
	if _, err := clustercheck.Check(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was interrupted", err)
	}
	if !slices.Contains(c.calls, "delete namespace") {
		t.Error("the namespace is left")
	}
}

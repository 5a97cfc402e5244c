package exntun

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podRuntime is a container runtime with one container in one pod.
type podRuntime struct {
	api.UnimplementedRuntimeServiceServer
	id          string // the container's
	annotations map[string]string
	fails       bool
}

func (r *podRuntime) ListContainers(_ context.Context, q *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	if r.fails {
		return nil, status.Error(codes.Unavailable, "it starts")
	}
	a := new(api.ListContainersResponse)
	if q.GetFilter().GetId() == r.id {
		a.Containers = []*api.Container{{Id: r.id, PodSandboxId: "5678"}}
	}
	return a, nil
}

func (r *podRuntime) PodSandboxStatus(_ context.Context, q *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	if q.GetPodSandboxId() != "5678" {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &api.PodSandboxStatusResponse{Status: &api.PodSandboxStatus{Annotations: r.annotations}}, nil
}

// serve serves at a socket of a root directory.
func (r *podRuntime) serve(t *testing.T, root, socket string) {
	t.Helper()
	path := filepath.Join(root, socket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterRuntimeServiceServer(s, r)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Stop(); <-ended })
}

// A pod's rules are those of its annotation, and only about its own connections. What is wrong is
// said, with the line.
func TestPodRules(t *testing.T) {
	root, err := os.MkdirTemp("", "root") // short: a socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	r := &podRuntime{id: "1234"}
	rules := func(container string) string {
		t.Helper()
		all, err := podRulesIn(t.Context(), root, container)
		if err != nil {
			return err.Error()
		}
		var lines []string
		for _, rule := range all {
			lines = append(lines, rule.String())
		}
		return strings.Join(lines, "\n")
	}
	check := func(container, want string) {
		t.Helper()
		if got := rules(container); got != want {
			t.Errorf("%q: %s, want %s", r.annotations[podAnnotation], got, want)
		}
	}
	check("1234", "") // there is no runtime
	r.serve(t, root, "run/crio/crio.sock")
	(&podRuntime{}).serve(t, root, "run/k3s/containerd/containerd.sock")
	for text, want := range map[string]string{
		"":                                    "",
		"off":                                 "off",
		"off # but\non --port 80 --share 10%": "off\non --port 80 --share 10",
		"no":                                  `annotation exnet.io/direct:1: "no": a rule begins with on or off`,
		"off\noff --port x":                   `annotation exnet.io/direct:2: invalid argument "x" for "--port" flag: use a number from 1 to 65535`,
		"off --container shop/db-0/redis":     "annotation exnet.io/direct: off --container shop/db-0/redis: a pod's rules are about its own connections, without --container and --pid",
		"off --pid 1":                         "annotation exnet.io/direct: off --pid 1: a pod's rules are about its own connections, without --container and --pid",
	} {
		r.annotations = map[string]string{podAnnotation: text, "other": "off"}
		check("1234", want)
	}
	check("99", "") // not Kubernetes'
	r.fails = true
	if got := rules("1234"); !strings.HasPrefix(got, "container runtime: /run/crio/crio.sock: ") || !strings.HasSuffix(got, "it starts") {
		t.Errorf("a runtime that starts: %s", got)
	}
}

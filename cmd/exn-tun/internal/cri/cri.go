package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sockets are where runtimes serve, below a host's root.
var sockets = []string{"run/containerd/containerd.sock", "run/crio/crio.sock", "run/k3s/containerd/containerd.sock"}

// Annotation returns the annotation that the pod of a container has by a name. root is the host's
// root directory, container the full ID. "": it has none, no runtime has the container, or it is no
// pod's. An error says that a runtime did not answer.
func Annotation(ctx context.Context, root, container, name string) (string, error) {
	var errs []error
	for _, socket := range sockets {
		path := filepath.Join(root, socket)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		value, found, err := askRuntime(ctx, path, container, name)
		if found {
			return value, nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("container runtime: /%s: %w", socket, err))
		}
	}
	return "", errors.Join(errs...)
}

// askRuntime asks one runtime. found false: it does not have the container.
func askRuntime(ctx context.Context, socket, container, name string) (value string, found bool, err error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", false, err
	}
	defer conn.Close()
	runtime := api.NewRuntimeServiceClient(conn)
	list, err := runtime.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{Id: container}})
	if err != nil || len(list.GetContainers()) != 1 {
		return "", false, err
	}
	sandbox := list.GetContainers()[0].GetPodSandboxId()
	status, err := runtime.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		return "", false, err
	}
	return status.GetStatus().GetAnnotations()[name], true, nil
}

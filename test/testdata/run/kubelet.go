// Command kubelet is a kubelet as far as a device plugin sees one.
//
//	kubelet serve DIR       takes a plugin, and prints "offered" and "gone"
//	kubelet allocate DIR    asks the plugin for a device, and prints what a container is given
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func main() {
	dir := os.Args[2]
	do := serve
	if os.Args[1] == "allocate" {
		do = allocate
	}
	if err := do(dir); err != nil {
		log.Fatal(err)
	}
}

// kubelet has one plugin, and knows it from its first registration on.
type kubelet struct {
	api.UnimplementedRegistrationServer
	dir string
}

func serve(dir string) error {
	ln, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, &kubelet{dir: dir})
	return s.Serve(ln)
}

func plugin(dir string) (api.DevicePluginClient, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "exnet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return api.NewDevicePluginClient(conn), nil
}

// Register implements api.RegistrationServer.
func (k *kubelet) Register(context.Context, *api.RegisterRequest) (*api.Empty, error) {
	p, err := plugin(k.dir)
	if err != nil {
		return nil, err
	}
	go func() {
		defer fmt.Println("gone")
		stream, err := p.ListAndWatch(context.Background(), &api.Empty{})
		if err != nil {
			return
		}
		if _, err := stream.Recv(); err == nil {
			fmt.Println("offered")
			_, _ = stream.Recv() // the end
		}
	}()
	return &api.Empty{}, nil
}

func allocate(dir string) error {
	p, err := plugin(dir)
	if err != nil {
		return err
	}
	r, err := p.Allocate(context.Background(), &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"0"}}}})
	if err != nil {
		return err
	}
	for _, c := range r.GetContainerResponses() {
		for name, value := range c.GetEnvs() {
			fmt.Printf("env %s=%s\n", name, value)
		}
		for _, m := range c.GetMounts() {
			fmt.Println("mount", m.GetHostPath(), m.GetContainerPath())
		}
	}
	return nil
}

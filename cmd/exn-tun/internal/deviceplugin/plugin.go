package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exnet/cmd/exn-tun/internal/cdi"
	"exnet/internal/logger"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Count is how many containers of a host may ask.
const Count = 1024

// Names of the plugin's and the kubelet's sockets.
const (
	socketName  = "exnet.sock"
	kubeletName = "kubelet.sock"
)

// Times: between two looks at the sockets, and for the kubelet to answer.
const (
	lookTime     = time.Second
	registerTime = 10 * time.Second
)

// Config is what a plugin offers, and where.
type Config struct {
	Dir  string    // the kubelet's, with kubelet.sock
	Spec *cdi.Spec // what a container is given
	// ByName: the kubelet is told the name of the CDI device, which the runtime has to know; else
	// the mounts and variables.
	ByName bool
	Log    logger.Logger
}

// Run offers the resource until ctx is cancelled. While there is no kubelet, it waits for one.
func Run(ctx context.Context, c Config) error {
	if _, err := os.Stat(c.Dir); err != nil {
		return fmt.Errorf("device plugin: %w", err)
	}
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	var p *plugin
	var said string
	defer func() { p.close() }()
	for {
		if !p.stands() {
			p.close()
			var err error
			p, err = startPlugin(ctx, c)
			switch {
			case err == nil:
				said = ""
				c.Log.Info("device plugin: registered", "resource", cdi.Kind, "dir", c.Dir)
			case ctx.Err() == nil && err.Error() != said:
				said = err.Error()
				c.Log.Warn("device plugin: waits for the kubelet", "reason", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// plugin is one that is registered with a kubelet.
type plugin struct {
	api.UnimplementedDevicePluginServer
	c          Config
	server     *grpc.Server
	socketInfo fs.FileInfo   // the plugin's socket
	kubelet    fs.FileInfo   // that of the kubelet with which it is registered
	ended      chan struct{} // closed when it no longer serves
	done       chan struct{} // closed when streams have to end
}

var _ api.DevicePluginServer = (*plugin)(nil)

func (c Config) socket(name string) string { return filepath.Join(c.Dir, name) }

// startPlugin serves, and registers with the kubelet.
func startPlugin(ctx context.Context, c Config) (p *plugin, err error) {
	p = &plugin{c: c, server: grpc.NewServer(), ended: make(chan struct{}), done: make(chan struct{})}
	if p.kubelet, err = os.Stat(c.socket(kubeletName)); err != nil {
		return nil, err
	}
	path := c.socket(socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // by then it may be another's
	api.RegisterDevicePluginServer(p.server, p)
	go func() {
		defer close(p.ended)
		_ = p.server.Serve(ln) // until close
	}()
	if p.socketInfo, err = os.Stat(path); err == nil {
		err = p.register(ctx)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// register tells the kubelet of the plugin. The kubelet calls it at once.
func (p *plugin) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix:"+p.c.socket(kubeletName), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, registerTime)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: socketName, ResourceName: cdi.Kind, Options: &api.DevicePluginOptions{},
	})
	return err
}

// stands reports whether both sockets are those of when it was registered.
func (p *plugin) stands() bool {
	return p != nil && sameFile(p.socketInfo, p.c.socket(socketName)) && sameFile(p.kubelet, p.c.socket(kubeletName))
}

// sameFile reports whether a file is the one of before. An inode's number may come again.
func sameFile(before fs.FileInfo, path string) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime())
}

// close ends it, and removes its socket if that is still its own.
func (p *plugin) close() {
	if p == nil {
		return
	}
	close(p.done)
	p.server.Stop()
	<-p.ended
	if path := p.c.socket(socketName); p.socketInfo != nil && sameFile(p.socketInfo, path) {
		_ = os.Remove(path) // a later plugin would, too
	}
}

// GetDevicePluginOptions implements api.DevicePluginServer.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements api.DevicePluginServer: all devices are there as long as the plugin is.
func (p *plugin) ListAndWatch(_ *api.Empty, s api.DevicePlugin_ListAndWatchServer) error {
	all := make([]*api.Device, Count)
	for i := range all {
		all[i] = &api.Device{ID: strconv.Itoa(i), Health: api.Healthy}
	}
	if err := s.Send(&api.ListAndWatchResponse{Devices: all}); err != nil {
		return err
	}
	select {
	case <-s.Context().Done():
	case <-p.done:
	}
	return nil
}

// Allocate implements api.DevicePluginServer.
func (p *plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	a := &api.AllocateResponse{}
	for _, one := range r.GetContainerRequests() {
		for _, id := range one.GetDevicesIds() {
			if n, err := strconv.Atoi(id); err != nil || n < 0 || n >= Count {
				return nil, status.Errorf(codes.InvalidArgument, "there is no device %q", id)
			}
		}
		a.ContainerResponses = append(a.ContainerResponses, p.containerResponse())
	}
	return a, nil
}

// containerResponse is what a container is given.
func (p *plugin) containerResponse() *api.ContainerAllocateResponse {
	if p.c.ByName {
		return &api.ContainerAllocateResponse{CdiDevices: []*api.CDIDevice{{Name: cdi.Qualified(cdi.All)}}}
	}
	env, mounts := p.c.Spec.Edits()
	c := &api.ContainerAllocateResponse{Envs: make(map[string]string)}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		c.Envs[name] = value
	}
	for _, m := range mounts {
		c.Mounts = append(c.Mounts, &api.Mount{HostPath: m.Host, ContainerPath: m.Container, ReadOnly: true})
	}
	return c
}

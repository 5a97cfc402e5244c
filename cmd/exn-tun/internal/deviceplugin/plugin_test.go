package deviceplugin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/cmd/exn-tun/internal/cdi"
	"exnet/internal/leaktest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// kubelet is one of the tests: it does with a plugin what a kubelet does.
type kubelet struct {
	api.UnimplementedRegistrationServer
	t          *testing.T
	dir        string
	server     *grpc.Server
	registered chan *api.RegisterRequest
}

// startKubelet removes all sockets, as a kubelet does, and listens.
func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(dir, "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	k := &kubelet{t: t, dir: dir, server: grpc.NewServer(), registered: make(chan *api.RegisterRequest, 100)}
	api.RegisterRegistrationServer(k.server, k)
	ln, err := net.Listen("unix", filepath.Join(dir, kubeletName))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = k.server.Serve(ln) }()
	t.Cleanup(k.server.Stop)
	return k
}

func (k *kubelet) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	k.registered <- r
	return &api.Empty{}, nil
}

// plugin waits until one has registered, and returns a client of it.
func (k *kubelet) plugin() api.DevicePluginClient {
	k.t.Helper()
	r := <-k.registered
	if r.GetVersion() != api.Version || r.GetResourceName() != "exnet.io/direct" {
		k.t.Errorf("registered %v", r)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { conn.Close() })
	return api.NewDevicePluginClient(conn)
}

// log keeps what is said.
type log struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// start runs a plugin until the test ends, or stop is called.
func start(t *testing.T, c Config) (said *log, stop func()) {
	t.Helper()
	said = &log{}
	c.Log = slog.New(slog.NewTextHandler(said, nil))
	c.Spec = cdi.New(cdi.Libraries{Glibc: "/opt/exnet/libexnds.so", Musl: "/opt/exnet/musl/libexnds.so"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return said, stop
}

func allocate(t *testing.T, p api.DevicePluginClient, ids ...string) (*api.AllocateResponse, error) {
	t.Helper()
	r := &api.AllocateRequest{}
	for _, id := range ids {
		r.ContainerRequests = append(r.ContainerRequests, &api.ContainerAllocateRequest{DevicesIds: []string{id}})
	}
	return p.Allocate(t.Context(), r)
}

// A kubelet hears of as many devices as a host has containers, and each gets library, variables and
// brokers.
func TestAllocate(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir)
	start(t, Config{Dir: dir})
	p := k.plugin()
	if o, err := p.GetDevicePluginOptions(t.Context(), &api.Empty{}); err != nil || o.GetPreStartRequired() || o.GetGetPreferredAllocationAvailable() {
		t.Errorf("options %v, %v", o, err)
	}
	stream, err := p.ListAndWatch(t.Context(), &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]bool)
	for _, d := range list.GetDevices() {
		if d.GetHealth() != api.Healthy {
			t.Errorf("device %v", d)
		}
		ids[d.GetID()] = true
	}
	if len(ids) != Count {
		t.Errorf("%d devices, want %d", len(ids), Count)
	}
	a, err := allocate(t, p, "0", "1023")
	if err != nil || len(a.GetContainerResponses()) != 2 {
		t.Fatalf("%v, %v", a, err)
	}
	for _, c := range a.GetContainerResponses() {
		mounts := make(map[string]string)
		for _, m := range c.GetMounts() {
			if !m.GetReadOnly() {
				t.Errorf("%v can be written", m)
			}
			mounts[m.GetContainerPath()] = m.GetHostPath()
		}
		if e := c.GetEnvs(); len(e) != 2 || e["EXNET"] != "1" || e["LD_PRELOAD"] != "/usr/lib/exnet/$LIB/libexnds.so" {
			t.Errorf("variables %v", e)
		}
		if mounts["/run/exn/ds"] != "/run/exn/ds" || mounts["/usr/lib/exnet/$LIB/libexnds.so"] != "/opt/exnet/musl/libexnds.so" ||
			mounts["/usr/lib/exnet/lib64/libexnds.so"] != "/opt/exnet/libexnds.so" || len(c.GetCdiDevices()) > 0 {
			t.Errorf("mounts %v, devices %v", mounts, c.GetCdiDevices())
		}
	}
	for _, id := range []string{"1024", "-1", "x", ""} {
		if _, err := allocate(t, p, id); status.Code(err) != codes.InvalidArgument {
			t.Errorf("device %q: %v", id, err)
		}
	}
}

// By name, a kubelet hears of the CDI device alone.
func TestByName(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir)
	start(t, Config{Dir: dir, ByName: true})
	a, err := allocate(t, k.plugin(), "7")
	if err != nil {
		t.Fatal(err)
	}
	c := a.GetContainerResponses()[0]
	if d := c.GetCdiDevices(); len(d) != 1 || d[0].GetName() != "exnet.io/direct=all" || len(c.GetMounts())+len(c.GetEnvs()) > 0 {
		t.Errorf("%v", c)
	}
}

// A plugin waits for a kubelet, says so once, and registers again with each that starts, as well as
// after its own socket was removed. At its end its socket goes.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	said, stop := start(t, Config{Dir: dir})
	const waits = "waits for the kubelet"
	for !strings.Contains(said.String(), waits) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(lookTime + lookTime/2) // it looks again, and has nothing new to say
	if n := strings.Count(said.String(), waits); n != 1 {
		t.Errorf("it says %d times that it waits", n)
	}
	for round := range 2 {
		k := startKubelet(t, dir)
		if _, err := allocate(t, k.plugin(), "1"); err != nil {
			t.Errorf("kubelet %d: %v", round, err)
		}
		if round == 1 {
			if err := os.Remove(filepath.Join(dir, socketName)); err != nil {
				t.Fatal(err)
			}
			if _, err := allocate(t, k.plugin(), "1"); err != nil {
				t.Errorf("after its socket was removed: %v", err)
			}
		}
		k.server.Stop()
	}
	stop()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A kubelet that refuses the plugin, and one that does not answer, are asked again.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, kubeletName))
	if err != nil {
		t.Fatal(err)
	}
	refuses := &refusing{fail: 1, done: make(chan struct{})}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, refuses)
	go func() { _ = server.Serve(ln) }()
	defer server.Stop()
	said, stop := start(t, Config{Dir: dir})
	<-refuses.done
	stop()
	if !strings.Contains(said.String(), "unsupported version") {
		t.Errorf("it said %s", said)
	}
}

// refusing is a kubelet that refuses the first of its plugins.
type refusing struct {
	api.UnimplementedRegistrationServer
	fail int // only one plugin registers, one time after the other
	done chan struct{}
}

func (r *refusing) Register(context.Context, *api.RegisterRequest) (*api.Empty, error) {
	if r.fail--; r.fail >= 0 {
		return nil, fmt.Errorf("unsupported version")
	}
	if r.fail == -1 {
		close(r.done)
	}
	return &api.Empty{}, nil
}

// Without the kubelet's directory it ends, and names it.
func TestNoDirectory(t *testing.T) {
	err := Run(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "no"), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "/no") {
		t.Error(err)
	}
}

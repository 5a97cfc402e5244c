package exncni_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"exnet/cmd/exn-cni/exncni"
	"exnet/internal/netns"
	"exnet/node/control"
	"exnet/test/testlab"
)

// TestMain removes the plugins that tests have built.
func TestMain(m *testing.M) {
	status := m.Run()
	os.RemoveAll(bin())
	os.Exit(status)
}

// bin is where the plugins are.
var bin = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "exncni")
	if err != nil {
		panic(err)
	}
	return dir
})

// build builds them, once.
var build = sync.OnceValue(func() error {
	for name, args := range map[string][]string{
		"exn-cni":    {"exnet/cmd/exn-cni"},
		"exn-tun":    {"exnet/cmd/exn-tun"},
		"host-local": {"-modfile", "../../../tools/go.mod", "github.com/containernetworking/plugins/plugins/ipam/host-local"},
	} {
		args = append([]string{"build", "-o", filepath.Join(bin(), name)}, args...)
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
})

// host is where a container runtime has its plugins and its networks.
type host struct {
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
	dir  string // of the fabric
	root string
}

// newHost builds the plugins. The interfaces are made in namespaces of the test.
func newHost(t *testing.T, change func(network map[string]any)) *host {
	t.Helper()
	testlab.RequireTUN(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	h := &host{dir: filepath.Join(root, "fabric"), root: root}
	network := map[string]any{
		"type": "exn-cni", "dir": h.dir, "records": filepath.Join(root, "records"),
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(root, "ipam"),
			"ranges": [][]map[string]string{{{"subnet": "10.44.0.0/24"}}, {{"subnet": "fd44::/64"}}},
		},
	}
	if change != nil {
		change(network)
	}
	b, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "lab", "plugins": []any{network}})
	if err != nil {
		t.Fatal(err)
	}
	if h.list, err = libcni.NetworkConfFromBytes(b); err != nil {
		t.Fatal(err)
	}
	h.cni = libcni.NewCNIConfigWithCacheDir([]string{bin()}, filepath.Join(root, "cache"), nil)
	return h
}

// container is a network namespace that a runtime has made.
func (h *host) container(t *testing.T, id string) *libcni.RuntimeConf {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return &libcni.RuntimeConf{ContainerID: id, NetNS: ns.Path(), IfName: "exn0"}
}

func (h *host) add(t *testing.T, rt *libcni.RuntimeConf) *types100.Result {
	t.Helper()
	r, err := h.cni.AddNetworkList(t.Context(), h.list, rt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.cni.DelNetworkList(context.Background(), h.list, rt) })
	result, err := types100.GetResult(r)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// nodes returns how many nodes are up.
func (h *host) nodes(t *testing.T) int {
	t.Helper()
	n, err := control.Nodes(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(n)
}

// leftovers returns what is in the records and in the fabric's directory.
func (h *host) leftovers(t *testing.T) (names []string) {
	t.Helper()
	for _, dir := range []string{"records/lab", "fabric"} {
		entries, err := os.ReadDir(filepath.Join(h.root, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, dir+"/"+e.Name())
		}
	}
	return names
}

func TestTwoContainers(t *testing.T) {
	h := newHost(t, nil)
	if err := h.cni.GetStatusNetworkList(t.Context(), h.list); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	a, b := h.container(t, "a"), h.container(t, "b")
	ra, rb := h.add(t, a), h.add(t, b)
	if len(ra.Interfaces) != 1 || ra.Interfaces[0].Name != "exn0" || ra.Interfaces[0].Sandbox != a.NetNS || ra.Interfaces[0].Mtu == 0 {
		t.Errorf("interfaces: %+v", ra.Interfaces)
	}
	if len(ra.IPs) != 2 || ra.IPs[0].Interface == nil || ra.IPs[0].Gateway != nil {
		t.Errorf("addresses: %+v", ra.IPs)
	}
	ns, err := netns.Open(a.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for _, ip := range rb.IPs {
		to, _ := netip.AddrFromSlice(ip.Address.IP)
		ping := exec.CommandContext(t.Context(), "ping", "-c", "1", "-W", "30", to.Unmap().String())
		out := new(strings.Builder)
		ping.Stdout, ping.Stderr = out, out
		if err := ns.Run(ping); err != nil {
			t.Errorf("%v: %v\n%s", ping.Args, err, out)
		}
	}
	for _, rt := range []*libcni.RuntimeConf{a, b} {
		if err := h.cni.CheckNetworkList(t.Context(), h.list, rt); err != nil {
			t.Errorf("CHECK of %s: %v", rt.ContainerID, err)
		}
	}
	_, err = h.cni.AddNetworkList(t.Context(), h.list, a)
	wantError(t, "a second ADD", err, types.ErrInvalidEnvironmentVariables, "attached already")
	if n := h.nodes(t); n != 2 {
		t.Errorf("%d nodes are up", n)
	}
	for range 2 { // the second time there is nothing left to do
		if err := h.cni.DelNetworkList(t.Context(), h.list, a); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	if n := h.nodes(t); n != 1 {
		t.Errorf("%d nodes are up after DEL of one of two", n)
	}
	err = h.cni.CheckNetworkList(t.Context(), h.list, a)
	if err == nil {
		t.Error("CHECK finds what DEL took away")
	}
	if err := h.cni.DelNetworkList(t.Context(), h.list, b); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if left := h.leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A node that was killed fails CHECK, and DEL cleans up after it. GC takes away what
// the runtime has forgotten, and nothing else.
func TestLost(t *testing.T) {
	h := newHost(t, nil)
	a, b, c := h.container(t, "a"), h.container(t, "b"), h.container(t, "c")
	h.add(t, a)
	h.add(t, b)
	h.add(t, c)
	nodes, err := control.Nodes(h.dir)
	if err != nil || len(nodes) != 3 {
		t.Fatal(nodes, err)
	}
	record, err := os.ReadFile(filepath.Join(h.root, "records/lab/a,exn0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ PID int }
	if err := json.Unmarshal(record, &r); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(r.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for h.nodes(t) == 3 { // until the kernel has ended it; the test's own time-out bounds it
	}
	wantError(t, "CHECK", h.cni.CheckNetworkList(t.Context(), h.list, a), types.ErrInternal, "is not up")
	if err := h.cni.DelNetworkList(t.Context(), h.list, a); err != nil {
		t.Errorf("DEL: %v", err)
	}
	// A runtime that has lost its cache, from which it would call DEL itself.
	forgetful := libcni.NewCNIConfigWithCacheDir([]string{bin()}, filepath.Join(h.root, "another"), nil)
	err = forgetful.GCNetworkList(t.Context(), h.list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "b", IfName: "exn0"}}})
	if err != nil {
		t.Errorf("GC: %v", err)
	}
	if n := h.nodes(t); n != 1 {
		t.Errorf("%d nodes are up after GC, not 1", n)
	}
	if leases, err := filepath.Glob(filepath.Join(h.root, "ipam/lab/*.*.*.*")); err != nil || len(leases) != 1 {
		t.Errorf("addresses %q are taken after GC, want one (%v)", leases, err)
	}
	if err := h.cni.CheckNetworkList(t.Context(), h.list, b); err != nil {
		t.Errorf("CHECK of the one that GC was to keep: %v", err)
	}
}

// What cannot be is refused with one clear line, and leaves nothing.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(map[string]any)
		netns  string
		code   uint
		want   string
	}{
		"no ipam":           {func(n map[string]any) { delete(n, "ipam") }, "", types.ErrInvalidNetworkConfig, "there is no ipam"},
		"fabric's name":     {func(n map[string]any) { n["fabric"] = "../x" }, "", types.ErrInvalidNetworkConfig, "fabric"},
		"negative MTU":      {func(n map[string]any) { n["mtu"] = -1 }, "", types.ErrInvalidNetworkConfig, "mtu is -1"},
		"MTU too large":     {func(n map[string]any) { n["mtu"] = 1 << 30 }, "", types.ErrInternal, "mtu"},
		"MTU is a word":     {func(n map[string]any) { n["mtu"] = "big" }, "", types.ErrDecodingFailure, "not what exn-cni reads"},
		"relative path":     {func(n map[string]any) { n["dir"] = "fabric" }, "", types.ErrInvalidNetworkConfig, "give a whole path"},
		"no such program":   {func(n map[string]any) { n["exnTun"] = "/no/such" }, "", types.ErrPluginNotAvailable, "/no/such"},
		"no such file":      {func(n map[string]any) { n["config"] = "/no/such.toml" }, "", types.ErrInvalidNetworkConfig, "/no/such.toml"},
		"a default route":   {func(n map[string]any) { ipamOf(n)["routes"] = []any{map[string]string{"dst": "0.0.0.0/0"}} }, "", types.ErrInvalidNetworkConfig, "has no gateway"},
		"no namespace":      {nil, "/no/such/ns", types.ErrInvalidNetNS, "cannot look at"},
		"not a namespace":   {nil, "/etc/hostname", types.ErrInvalidNetNS, "is not a network namespace"},
		"the host's own":    {nil, "/proc/self/ns/net", types.ErrInvalidNetNS, "host's own"},
		"an address of two": {func(n map[string]any) { ipamOf(n)["ranges"] = [][]any{{map[string]string{"subnet": "10.44.0.0/33"}}} }, "", 0, "ipam plugin host-local"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, test.change)
			rt := h.container(t, "a")
			if test.netns != "" {
				rt.NetNS = test.netns
			}
			_, err := h.cni.AddNetworkList(t.Context(), h.list, rt)
			wantError(t, "ADD", err, test.code, test.want)
			if left := h.leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if leases, _ := filepath.Glob(filepath.Join(h.root, "ipam/lab/*.*.*.*")); len(leases) > 0 {
				t.Errorf("addresses are still taken: %v", leases)
			}
		})
	}
}

// An ID that is too long for a file's name leaves no folder for the network.
func TestLongContainerID(t *testing.T) {
	h := newHost(t, nil)
	_, err := h.cni.AddNetworkList(t.Context(), h.list, h.container(t, strings.Repeat("x", 1000)))
	wantError(t, "ADD", err, types.ErrInvalidEnvironmentVariables, "use up to 213")
	if left, err := os.ReadDir(filepath.Join(h.root, "records")); !errors.Is(err, fs.ErrNotExist) && (err != nil || len(left) > 0) {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// What ADD cannot do without, STATUS misses: with the code that the specification has for it.
func TestUnavailable(t *testing.T) {
	for name, test := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"no ipam plugin":       {func(n map[string]any) { ipamOf(n)["type"] = "no-such-ipam" }, "ipam plugin no-such-ipam"},
		"a broken ipam plugin": {func(n map[string]any) { ipamOf(n)["type"] = "broken-ipam" }, "netplugin failed"},
		"no exn-tun":           {func(n map[string]any) { n["exnTun"] = "/no/such" }, "/no/such"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, test.change)
			if err := os.WriteFile(filepath.Join(bin(), "broken-ipam"), []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			wantError(t, "STATUS", h.cni.GetStatusNetworkList(t.Context(), h.list), types.ErrPluginNotAvailable, test.want)
			_, err := h.cni.AddNetworkList(t.Context(), h.list, h.container(t, "a"))
			wantError(t, "ADD", err, types.ErrPluginNotAvailable, test.want)
			if left := h.leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// An IPAM plugin older than the configuration's version is named, with what to do, by STATUS and
// GC.
func TestOldIPAM(t *testing.T) {
	h := newHost(t, func(n map[string]any) { ipamOf(n)["type"] = "old-ipam" })
	const old = `#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}' && exit
echo '{"code": 4, "msg": "missing containerID"}' && exit 1
`
	if err := os.WriteFile(filepath.Join(bin(), "old-ipam"), []byte(old), 0o755); err != nil {
		t.Fatal(err)
	}
	const want = `ipam plugin old-ipam does not speak version 1.1.0: install a newer one, or set cniVersion to "1.0.0", which has no STATUS and no GC`
	wantError(t, "STATUS", h.cni.GetStatusNetworkList(t.Context(), h.list), types.ErrPluginNotAvailable, want)
	wantError(t, "GC", h.cni.GCNetworkList(t.Context(), h.list, &libcni.GCArgs{}), types.ErrIncompatibleCNIVersion, want)
}

// An error is an object as the specification has it, in the configuration's version if the plugin
// speaks that.
func TestErrorObject(t *testing.T) {
	for name, test := range map[string]struct {
		command, netconf string
		version          string
		code             uint
	}{
		"refused":             {"ADD", `{"cniVersion": "1.0.0", "name": "lab", "type": "exn-cni", "mtu": -1}`, "1.0.0", types.ErrInvalidNetworkConfig},
		"an old version":      {"ADD", `{"cniVersion": "0.4.0", "type": "exn-cni"}`, "0.4.0", types.ErrInvalidNetworkConfig},
		"an unknown version":  {"ADD", `{"cniVersion": "7.0.0", "name": "lab", "type": "exn-cni"}`, "1.1.0", types.ErrIncompatibleCNIVersion},
		"no version":          {"ADD", `{"name": "lab", "type": "exn-cni"}`, "1.1.0", types.ErrIncompatibleCNIVersion},
		"version is a number": {"ADD", `{"cniVersion": 1, "name": "lab", "type": "exn-cni"}`, "1.1.0", types.ErrDecodingFailure},
		"no configuration":    {"DEL", "", "1.1.0", types.ErrDecodingFailure},
		"not JSON":            {"GC", "\x00{", "1.1.0", types.ErrDecodingFailure},
		"an endless one":      {"ADD", strings.Repeat(" ", 16<<20+1), "1.1.0", types.ErrIOFailure},
		"an unknown command":  {"FLY", `{"cniVersion": "1.0.0", "name": "lab", "type": "exn-cni"}`, "1.0.0", types.ErrInvalidEnvironmentVariables},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range map[string]string{"COMMAND": test.command, "CONTAINERID": "a", "NETNS": "/proc/self/ns/net", "IFNAME": "exn0", "PATH": bin()} {
				t.Setenv("CNI_"+k, v)
			}
			defer func(stdin *os.File) { os.Stdin = stdin }(os.Stdin)
			var stdout, stderr strings.Builder
			if status := exncni.Run(nil, strings.NewReader(test.netconf), &stdout, &stderr); status != 1 || stderr.Len() > 0 {
				t.Errorf("status %d, %q", status, stderr.String())
			}
			var said struct {
				CNIVersion string
				types.Error
			}
			d := json.NewDecoder(strings.NewReader(stdout.String()))
			d.DisallowUnknownFields()
			if err := d.Decode(&said); err != nil || said.CNIVersion != test.version || said.Code != test.code || said.Msg == "" {
				t.Errorf("%v, want version %s and code %d:\n%s", err, test.version, test.code, stdout.String())
			}
		})
	}
}

func ipamOf(network map[string]any) map[string]any { return network["ipam"].(map[string]any) }

// wantError checks an error's code, 0 for any, and its text.
func wantError(t *testing.T, what string, err error, code uint, text string) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v, not an error of the plugin", what, err)
		return
	}
	if said := fmt.Sprint(e.Msg, " ", e.Details); code != 0 && e.Code != code || !strings.Contains(said, text) {
		t.Errorf("%s: code %d, %q; want code %d, %q", what, e.Code, said, code, text)
	}
}

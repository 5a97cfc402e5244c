package exncni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"exnet/node/daemon"
	"exnet/node/tun"
)

// versions are the versions of the specification that the plugin speaks.
var versions = version.PluginSupports("0.4.0", "1.0.0", "1.1.0")

// funcs are the plugin's answers to the runtime.
var funcs = skel.CNIFuncs{Add: addInterface, Del: del, Check: checkInterface, Status: checkStatus, GC: collectGarbage}

// addInterface gives a container an interface: addresses from the IPAM plugin, then a node.
func addInterface(a *skel.CmdArgs) (err error) {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	if err := c.checkNames(a.ContainerID, a.IfName); err != nil {
		return err
	}
	if err := checkNetNS(a.Netns); err != nil {
		return err
	}
	program, err := c.programPath()
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if c.IPAM.Type == "" {
		return invalid("there is no ipam: name a plugin that assigns addresses, such as host-local")
	}
	dir, err := c.dirOf()
	if err != nil {
		return err
	}
	path := c.recordPath(a.ContainerID, a.IfName)
	r := &record{Network: c.Name, ContainerID: a.ContainerID, Interface: a.IfName, NetNS: a.Netns, Dir: dir}
	if err := r.writeNew(path); errors.Is(err, fs.ErrExist) {
		return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("%s of container %s is attached already: DEL comes first", a.IfName, a.ContainerID), "")
	} else if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = removeRecord(path) // err says more
		}
	}()
	given, err := invoke.DelegateAdd(context.Background(), c.IPAM.Type, a.StdinData, nil)
	if err != nil {
		return c.ofIPAM(err)
	}
	defer func() {
		if err != nil {
			_ = invoke.DelegateDel(context.Background(), c.IPAM.Type, a.StdinData, nil)
		}
	}()
	result, err := types100.NewResultFromResult(given)
	if err != nil {
		return err
	}
	if err := checkGiven(result); err != nil {
		return err
	}
	if err := startNode(r, path, program, c.upArgs(a.Netns, a.IfName, result.IPs)); err != nil {
		return err
	}
	s, err := r.nodeStatus()
	if err != nil {
		return errors.Join(err, stopNode(r))
	}
	result.Interfaces = []*types100.Interface{{Name: a.IfName, Mac: s.Interface.MAC, Mtu: s.Interface.MTU, Sandbox: a.Netns}}
	for _, ip := range result.IPs {
		ip.Interface = types100.Int(0)
	}
	result.DNS = c.DNS
	if err := types.PrintResult(result, c.CNIVersion); err != nil {
		return errors.Join(err, stopNode(r))
	}
	return nil
}

// checkNames refuses what package skel lets through: names that a record cannot hold or its file
// cannot have, and that what prints them would obey.
func (c *config) checkNames(container, ifname string) error {
	wrong := func(format string, args ...any) error {
		return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf(format, args...), "")
	}
	if strings.ContainsFunc(ifname, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return wrong("CNI_IFNAME is %q: use printable characters", ifname)
	}
	const temporary = 32 // what renameio adds, at most
	if n := len(filepath.Base(c.recordPath(container, ifname))) + temporary; n > unix.NAME_MAX {
		return wrong("CNI_CONTAINERID has %d characters: use up to %d", len(container), len(container)-(n-unix.NAME_MAX))
	}
	return nil
}

// checkNetNS refuses the host's own network namespace, and files that are not network
// namespaces.
func checkNetNS(path string) error {
	var theirs, ours unix.Stat_t
	var fsys unix.Statfs_t
	err := unix.Stat(path, &theirs)
	if err == nil {
		err = errors.Join(unix.Statfs(path, &fsys), unix.Stat("/proc/self/ns/net", &ours))
	}
	if err != nil {
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("cannot look at the network namespace %s", path), err.Error())
	}
	if fsys.Type != unix.NSFS_MAGIC {
		return types.NewError(types.ErrInvalidNetNS, path+" is not a network namespace", "")
	}
	if theirs.Ino == ours.Ino && theirs.Dev == ours.Dev {
		return types.NewError(types.ErrInvalidNetNS, path+" is the host's own network namespace: run exn-tun up there instead", "")
	}
	return nil
}

// checkGiven refuses what an interface without a link layer cannot do.
func checkGiven(r *types100.Result) error {
	if len(r.IPs) == 0 {
		return invalid("the ipam plugin gives no address")
	}
	if len(r.Routes) > 0 {
		return invalid("the ipam plugin gives a route to %s: exn0 leads to the fabric alone, and has no gateway; take it out of ipam's routes, and give the container another network for it", r.Routes[0].Dst.String())
	}
	for _, ip := range r.IPs {
		ip.Gateway = nil // host-local names one even without a route
	}
	return nil
}

// dirOf returns the fabric's directory.
func (c *config) dirOf() (string, error) {
	d := daemon.Config{Fabric: c.Fabric, Dir: c.Dir}
	if c.File != "" {
		var err error
		if d, err = daemon.ReadFile(c.File); err != nil {
			return "", invalid("config: %v", err)
		}
		if c.Fabric != "" {
			d.Fabric = c.Fabric
		}
		if c.Dir != "" {
			d.Dir = c.Dir
		}
	}
	d, err := d.WithDefaults()
	if err != nil {
		return "", invalid("%v", err)
	}
	return d.Dir, nil
}

// del removes an interface. It may be called again, and when parts of the interface are gone
// already.
func del(a *skel.CmdArgs) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	if err := detachRecord(c.recordPath(a.ContainerID, a.IfName), nil); err != nil {
		return err
	}
	if c.IPAM.Type == "" {
		return nil
	}
	return c.ofIPAM(invoke.DelegateDel(context.Background(), c.IPAM.Type, a.StdinData, nil))
}

// ofIPAM names the IPAM plugin in its error; nil stays nil. A plugin that is missing, or
// violates the specification, counts as not available (code 50).
func (c *config) ofIPAM(err error) error {
	if err == nil {
		return nil
	}
	var e *types.Error
	if !errors.As(err, &e) {
		return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("ipam plugin %s: %v", c.IPAM.Type, err), "")
	}
	code := e.Code
	if code == types.ErrUnknown { // not an error of the specification
		code = types.ErrPluginNotAvailable
	}
	return types.NewError(code, fmt.Sprintf("ipam plugin %s: %s", c.IPAM.Type, e.Msg), e.Details)
}

// detachRecord ends the node of a record, gives back its addresses by free, unless that is nil, and
// removes the record.
func detachRecord(path string, free func(*record) error) error {
	r, err := readRecord(path)
	if err != nil || r == nil {
		return err
	}
	if err := stopNode(r); err != nil {
		return err
	}
	if free != nil {
		if err := free(r); err != nil {
			return err
		}
	}
	return removeRecord(path)
}

// freeAddresses gives back the addresses of a record with DEL, because host-local does nothing
// at GC.
func (c *config) freeAddresses(r *record, netconf []byte) error {
	if c.IPAM.Type == "" {
		return nil
	}
	dirs := os.Getenv("CNI_PATH")
	program, err := invoke.FindInPath(c.IPAM.Type, filepath.SplitList(dirs))
	if err != nil {
		return c.ofIPAM(err)
	}
	args := &invoke.Args{Command: "DEL", ContainerID: r.ContainerID, NetNS: r.NetNS, IfName: r.Interface, Path: dirs}
	return c.ofIPAM(invoke.ExecPluginWithoutResult(context.Background(), program, netconf, args, nil))
}

// checkInterface checks that an interface is still as addInterface made it.
func checkInterface(a *skel.CmdArgs) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	if c.prev == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "CHECK needs the prevResult of ADD", "")
	}
	r, err := readRecord(c.recordPath(a.ContainerID, a.IfName))
	if err != nil {
		return err
	}
	if r == nil {
		return types.NewError(types.ErrUnknownContainer, fmt.Sprintf("%s of container %s is not attached", a.IfName, a.ContainerID), "")
	}
	s, err := r.nodeStatus()
	if err != nil {
		return err
	}
	if s.Interface.Name != a.IfName || !s.Interface.Up {
		return fmt.Errorf("interface %s of node %d is not up", a.IfName, s.Node)
	}
	for _, ip := range c.prev.IPs {
		if ip.Interface == nil || *ip.Interface < 0 || *ip.Interface >= len(c.prev.Interfaces) || c.prev.Interfaces[*ip.Interface].Name != a.IfName {
			continue // of another plugin of the chain
		}
		want, err := netip.ParsePrefix(ip.Address.String())
		if err != nil {
			return err
		}
		if !slices.Contains(s.Interface.Addrs, want) {
			return fmt.Errorf("interface %s of node %d no longer has %s", a.IfName, s.Node, want)
		}
	}
	if c.IPAM.Type == "" {
		return nil
	}
	return c.ofIPAM(invoke.DelegateCheck(context.Background(), c.IPAM.Type, a.StdinData, nil))
}

// checkStatus says whether ADD can work.
func checkStatus(a *skel.CmdArgs) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	if _, err := c.programPath(); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if err := tun.Supported(); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if err := os.MkdirAll(c.Records, 0o700); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
	}
	if _, err := c.dirOf(); err != nil {
		return err
	}
	if c.IPAM.Type == "" {
		return invalid("there is no ipam: name a plugin that assigns addresses, such as host-local")
	}
	if err := c.ipamSpeaks(types.ErrPluginNotAvailable); err != nil {
		return err
	}
	return c.ofIPAM(invoke.DelegateStatus(context.Background(), c.IPAM.Type, a.StdinData, nil))
}

// collectGarbage detaches the interfaces that the runtime does not know any more.
func collectGarbage(a *skel.CmdArgs) error {
	c, err := parseConfig(a.StdinData)
	if err != nil {
		return err
	}
	valid := make(map[string]bool)
	for _, v := range c.ValidAttachments {
		valid[c.recordPath(v.ContainerID, v.IfName)] = true
	}
	paths, err := c.recordPaths()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if !valid[path] {
			err = errors.Join(err, detachRecord(path, func(r *record) error { return c.freeAddresses(r, a.StdinData) }))
		}
	}
	if c.IPAM.Type == "" || !hasStatus(c.CNIVersion) {
		return err
	}
	if old := c.ipamSpeaks(types.ErrIncompatibleCNIVersion); old != nil {
		return errors.Join(old, err)
	}
	return errors.Join(err, c.ofIPAM(invoke.DelegateGC(context.Background(), c.IPAM.Type, a.StdinData, nil)))
}

// ipamSpeaks returns an error with that code if the IPAM plugin does not speak the configuration's
// version of the specification. An older plugin does not know what STATUS and GC are, and complains
// of what it misses for DEL.
func (c *config) ipamSpeaks(code uint) error {
	program, err := invoke.FindInPath(c.IPAM.Type, filepath.SplitList(os.Getenv("CNI_PATH")))
	if err != nil {
		return c.ofIPAM(err)
	}
	info, err := invoke.GetVersionInfo(context.Background(), program, nil)
	if err != nil {
		return c.ofIPAM(err)
	}
	theirs := info.SupportedVersions()
	if slices.Contains(theirs, c.CNIVersion) {
		return nil
	}
	both := slices.DeleteFunc(slices.Clone(versions.SupportedVersions()), func(v string) bool { return !slices.Contains(theirs, v) })
	advice := "install a newer one"
	if len(both) > 0 {
		advice += fmt.Sprintf(", or set cniVersion to %q, which has no STATUS and no GC", both[len(both)-1])
	}
	return types.NewError(code, fmt.Sprintf("ipam plugin %s does not speak version %s: %s", c.IPAM.Type, c.CNIVersion, advice), "")
}

// hasStatus reports whether a version of the specification has STATUS and GC.
func hasStatus(v string) bool {
	ok, err := version.GreaterThanOrEqualTo(v, "1.1.0")
	return err == nil && ok
}

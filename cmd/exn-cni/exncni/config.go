package exncni

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"exnet/fabric/emp"
)

// recordsDir is the default directory of the records. It is in /run, which a restart of the
// host empties: the containers are gone then, too.
const recordsDir = "/run/exn-cni"

// config is a network's configuration: the fields of the specification, and those that this
// plugin adds.
type config struct {
	types.PluginConf

	Fabric  string `json:"fabric,omitempty"`  // as exn-tun up --fabric
	Dir     string `json:"dir,omitempty"`     // as --dir
	MTU     int    `json:"mtu,omitempty"`     // as --mtu; 0: the fabric's default
	File    string `json:"config,omitempty"`  // as --config: a file with all other settings
	ExnTun  string `json:"exnTun,omitempty"`  // path of exn-tun; "": beside the plugin, or in PATH
	Records string `json:"records,omitempty"` // directory of the records; "": /run/exn-cni

	prev *types100.Result
}

// parseConfig reads and checks the configuration that a runtime has sent.
func parseConfig(stdin []byte) (*config, error) {
	var c config
	if err := json.Unmarshal(stdin, &c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the network's configuration is not what exn-cni reads", err.Error())
	}
	if c.Fabric != "" {
		if err := emp.CheckName(c.Fabric); err != nil {
			return nil, invalid("fabric: %v", err)
		}
	}
	if c.MTU < 0 {
		return nil, invalid("mtu is %d: give bytes, or leave it out", c.MTU)
	}
	for name, path := range map[string]string{"dir": c.Dir, "config": c.File, "exnTun": c.ExnTun, "records": c.Records} {
		if path != "" && !filepath.IsAbs(path) {
			return nil, invalid("%s is %q: give a whole path, as the runtime's working directory is not yours", name, path)
		}
	}
	if c.Records == "" {
		c.Records = recordsDir
	}
	if c.RawPrevResult != nil {
		if err := version.ParsePrevResult(&c.PluginConf); err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "prevResult is not a result", err.Error())
		}
		prev, err := types100.NewResultFromResult(c.PrevResult)
		if err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "prevResult is not a result", err.Error())
		}
		c.prev = prev
	}
	return &c, nil
}

func invalid(format string, args ...any) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf(format, args...), "")
}

// programPath returns the path of exn-tun.
func (c *config) programPath() (string, error) {
	if c.ExnTun != "" {
		return exec.LookPath(c.ExnTun)
	}
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), "exn-tun")); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("exn-tun")
	if err != nil {
		return "", fmt.Errorf("there is no exn-tun beside exn-cni nor in PATH: install it, or name it with \"exnTun\"")
	}
	return path, nil
}

// fabricFlags returns the flags that select the fabric.
func (c *config) fabricFlags() (args []string) {
	if c.Fabric != "" {
		args = append(args, "--fabric", c.Fabric)
	}
	if c.Dir != "" {
		args = append(args, "--dir", c.Dir)
	}
	return args
}

// upArgs returns the arguments of exn-tun for an interface in a network namespace.
func (c *config) upArgs(netns, ifname string, ips []*types100.IPConfig) []string {
	args := []string{"up"}
	if c.File != "" {
		args = append(args, "--config", c.File)
	}
	args = append(args, c.fabricFlags()...)
	args = append(args, "--netns", netns, "--interface", ifname)
	if c.MTU != 0 {
		args = append(args, "--mtu", strconv.Itoa(c.MTU))
	}
	for _, ip := range ips {
		flag := "--addr6"
		if ip.Address.IP.To4() != nil {
			flag = "--addr"
		}
		args = append(args, flag, ip.Address.String())
	}
	return args
}

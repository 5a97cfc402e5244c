package paths

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
)

// dsFabricPath is direct sockets between two hosts: daemons in namespaces that share nothing
// but a veth pair, which bring the bytes through the fabric over a plain stream link.
type dsFabricPath struct {
	exnShmPath
	hosts hosts
}

func newDSFabric(cfg NodeConfig) Path {
	return &dsFabricPath{exnShmPath: exnShmPath{nodePath: newNodePath(cfg)}}
}

func (p *dsFabricPath) Setup(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.tmp, err = tempdir.New("dsbench"); err != nil {
		return err
	}
	if err := p.hosts.open(); err != nil {
		return err
	}
	var up [2]nodeUp
	var dirs []string
	for i := range up { // the first listens when it is up
		job := daemonJob{Node: p.cfg, Index: i, Tmp: p.tmp, Host: p.hosts[i].Path()}
		if err := p.start(ctx, p.hosts[i], daemonCommand, job, &up[i]); err != nil {
			return err
		}
		dirs = append(dirs, filepath.Join(p.tmp, strconv.Itoa(i)))
	}
	if err := p.link(ctx, dirs...); err != nil {
		return err
	}
	return p.join(up)
}

// Measure implements Path.
func (p *dsFabricPath) Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	spec.Transport = tcpbench.Direct
	return p.exnShmPath.Measure(ctx, spec)
}

// Close ends the nodes and removes what they had.
func (p *dsFabricPath) Close() error {
	return errors.Join(p.exnShmPath.Close(), p.hosts.close())
}

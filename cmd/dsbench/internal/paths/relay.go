package paths

import "context"

// relayPath is TCP between two namespaces whose TUN devices a loop joins that does
// nothing else: what is left of exn0 without a fabric, and so what exn0 is measured
// by.
type relayPath struct {
	nodePath
}

func newRelay(cfg NodeConfig) Path {
	return &relayPath{newNodePath(NodeConfig{MTU: cfg.MTU})}
}

// Info implements Path.
func (p *relayPath) Info() Info { return Info{MTU: p.mtu} }

func (p *relayPath) Setup(ctx context.Context) error {
	var up [2]nodeUp
	if err := p.start(ctx, nil, relayCommand, p.cfg, &up); err != nil {
		return err
	}
	return p.join(up)
}

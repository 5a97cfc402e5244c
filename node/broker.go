package node

import (
	"context"
	"errors"

	"exnet/directsockets/broker"
)

// BrokerConfig returns the configuration for a broker of direct sockets on the node. The caller
// sets In, Path and Log.
func (n *Node) BrokerConfig() broker.Config {
	b := broker.Config{
		Node: uint16(n.Interface.NodeID()),
		Zone: uint32(n.Device.Index()),
	}
	for _, a := range n.place.cfg.Addrs {
		b.Addrs = append(b.Addrs, a.Addr())
	}
	return b
}

// startBrokers gives each node a broker, and joins them all. If their sockets cannot be made,
// there are no brokers, and programs use TCP.
func (c *Cluster) startBrokers(ctx context.Context) error {
	for i, n := range c.Nodes {
		cfg := n.BrokerConfig()
		cfg.In = c.spaces[i].Do
		b, err := broker.New(cfg)
		if err != nil {
			return c.closeBrokers()
		}
		for _, other := range c.Brokers {
			if err := broker.Join(b, other); err != nil {
				return errors.Join(err, b.Close())
			}
		}
		c.Brokers = append(c.Brokers, b)
	}
	for _, b := range c.Brokers {
		c.group.Go(func() error { return b.Run(ctx) })
	}
	return nil
}

func (c *Cluster) closeBrokers() error {
	var errs []error
	for _, b := range c.Brokers {
		errs = append(errs, b.Close())
	}
	c.Brokers = nil
	return errors.Join(errs...)
}

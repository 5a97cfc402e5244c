package exntun

import (
	"context"
	"errors"
	"fmt"

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/cli"
	"exnet/internal/tcpbench"
)

// firstWays returns those between the first two nodes. Without brokers there is no direct one.
func (d *demo) firstWays(veth lab.Path) ways {
	exn := d.lab.Exn(1)
	on := ways{veth: way{name: "veth", path: veth}, exn: way{name: "exn0", path: exn}}
	if len(d.lab.Cluster.Brokers) > 0 {
		on.direct = &way{name: "direct sockets", path: exn, direct: true}
	}
	return on
}

// measureAll takes the measurements, and checks with two kinds of counters that what is called
// direct was.
func (d *demo) measureAll(ctx context.Context, on ways) error {
	all := d.o.measurements(d.countDirect)
	for i, m := range all {
		take := m.take
		all[i].take = func(ctx context.Context, w way) (float64, error) {
			before := d.overExn()
			v, err := take(ctx, w)
			if w.direct {
				d.report.Direct.ExnBytes += d.overExn() - before
			}
			return v, err
		}
	}
	for _, m := range all {
		if err := d.takeMeasurement(ctx, m, on); err != nil {
			return err
		}
	}
	if on.direct == nil {
		d.report.addCheck("direct", errors.New("direct sockets are missing: no broker could be made in the nodes' namespaces"), "")
	} else {
		detail, err := d.report.Direct.checkDirect()
		d.report.addCheck("direct", err, detail)
	}
	if d.redis == nil {
		return nil
	}
	redis := measurement{"redis", fmt.Sprintf("redis GET, %d clients", lab.RedisClients), unitRate, true, func(ctx context.Context, w way) (float64, error) {
		return d.redis.Measure(ctx, w.path, w.direct)
	}}
	if on.direct == nil {
		return d.takeMeasurement(ctx, redis, on)
	}
	if d.redis.ExnRun == "" {
		d.progress.nextStep()
	}
	defer d.redis.Close() // a folder that stays is removed by the next one
	if err := d.redis.Prepare(ctx); err != nil && ctx.Err() == nil {
		// The host lacks what exn-run needs; the demonstration is not about that.
		d.report.NoRedis = cli.Text(err)
		d.progress.nextStep()
		return nil
	}
	return d.takeMeasurement(ctx, redis, on)
}

// takeMeasurement takes a measurement and reports it.
func (d *demo) takeMeasurement(ctx context.Context, m measurement, on ways) error {
	d.progress.nextStep()
	taken, total := 0, d.o.runs*len(on.wayList())
	fig, err := m.measureWays(ctx, on, d.o.runs, func() {
		taken++
		d.progress.setDone(float64(taken) / float64(total))
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.report.addCheck(fmt.Sprintf("%s, %v", m.name, lab.V4), err, fig.String())
	if err == nil {
		d.report.Checks[len(d.report.Checks)-1].measured = true
		d.report.Figures = append(d.report.Figures, fig)
	}
	return nil
}

// countDirect adds up what the connections themselves counted.
func (d *demo) countDirect(r tcpbench.Result) {
	d.report.Direct.Bytes += uint64(r.Bytes)
	d.report.Direct.TCPBytes += uint64(r.Shadow)
	d.report.Direct.Before += uint64(r.Before)
	d.report.Direct.Kernel += uint64(max(r.Kernel, 0))
}

// overExn returns the bytes of all frames that came to the first two nodes.
func (d *demo) overExn() (sum uint64) {
	for _, n := range d.lab.Cluster.Nodes[:2] {
		sum += n.Interface.Stats().Port.RxBytes
	}
	return sum
}

// checkDirect says what went direct. It is an error if nothing was measured, or if the kernel's
// TCP carried what the connections say has gone direct: half of it is enough, as a direct
// connection leaves nothing to TCP. exn0's counters say nothing about that, since TCP sends
// again what is late on a busy machine.
func (c directCount) checkDirect() (string, error) {
	const mb = 1e6
	switch {
	case c.Bytes == 0:
		return "", errors.New("nothing was measured")
	case c.Kernel >= c.TCPBytes+(c.Bytes-min(c.TCPBytes, c.Bytes))/2:
		return "", fmt.Errorf("TCP carried %.1f MB by the kernel's count, while %.1f MB were to go direct", float64(c.Kernel)/mb, float64(c.Bytes)/mb)
	}
	const gb = 1e9
	return fmt.Sprintf("%.2f GB through shared memory, after %.2f GB over exn0", float64(c.Bytes-c.TCPBytes)/gb, float64(c.ExnBytes)/gb), nil
}

package bench

import (
	"context"
	"errors"
	"fmt"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/tcpbench"
)

// sink takes results as they become known.
type sink interface {
	rows(rows []result.Row) error // of one size
	end() error
}

// runAll sets the paths up, takes all measurements and gives them to out. After
// an error or a cancelled context, out has had what was measured until then.
func runAll(ctx context.Context, o options, m result.Machine, out sink, p *progress) (err error) {
	opened := make([]paths.Path, 0, len(o.paths))
	defer func() {
		for i, path := range opened {
			if closeErr := path.Close(); closeErr != nil {
				err = errors.Join(err, fmt.Errorf("path %s: cleaning up: %w", o.paths[i].Name, closeErr))
			}
		}
	}()
	failed := make([]bool, len(o.paths))
	for i, kind := range o.paths {
		path := kind.Open(o.node)
		opened = append(opened, path)
		p.say("setting up %s", kind.Name)
		if err := path.Setup(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted while setting up %s", kind.Name)
			}
			if err = fmt.Errorf("path %s: %w", kind.Name, err); o.tolerate == nil {
				return err
			}
			o.tolerate(kind.Name, err)
			failed[i] = true
		}
	}
	for _, size := range o.sizes {
		p.say("measuring the distance of the CPUs")
		d := distance()
		samples, at, err := runSize(ctx, o, opened, failed, size, p)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("interrupted after %d of %d measurements", p.done, p.total)
		}
		p.clear()
		err = errors.Join(err, out.rows(makeRows(o, m, d.At(at), opened, size, samples)))
		if err != nil {
			return errors.Join(err, out.end())
		}
	}
	return out.end()
}

// distance measures that of the CPUs that Apart places the ends on, and look does without the
// copies of memory. They are variables for tests.
var (
	distance = func() coredist.Distance {
		cpus := tcpbench.Apart()
		return coredist.Measure(cpus.Client, cpus.Server)
	}
	look = measure.Distance
)

// runSize takes the measurements of one size, interleaved: A B A B, in rounds at one distance of
// the CPUs, as many as the options say. The samples are in the order of the paths; after an error
// they are those until then. A path that does not take the size, or has failed, has none.
func runSize(ctx context.Context, o options, opened []paths.Path, failed []bool, size int, p *progress) ([][]sample, coredist.Distance, error) {
	round := func(run int) ([][]sample, error) {
		taken := make([][]sample, len(opened)) // by the path
		if run >= o.runs {                     // in place of one at another distance
			p.total += o.round(size)
		}
		for i, path := range opened {
			kind := o.paths[i]
			if !kind.Takes(o.measure.kind, size) {
				continue
			}
			if failed[i] {
				p.done++
				continue
			}
			if ctx.Err() != nil {
				return taken, ctx.Err()
			}
			p.step("%s, %d bytes, run %d of %d", kind.Name, size, run+1, max(o.runs, run+1))
			r, err := path.Measure(ctx, o.spec(size))
			if err != nil {
				err = fmt.Errorf("path %s, %d bytes, run %d: %w", kind.Name, size, run+1, err)
				if o.tolerate == nil || ctx.Err() != nil {
					return taken, err
				}
				o.tolerate(kind.Name, err)
				failed[i] = true
			} else {
				taken[i] = []sample{o.measure.sample(r, size)}
			}
			p.stepDone()
		}
		return taken, nil
	}
	kept, at, err := coredist.Rounds(o.runs, look, round)
	samples := make([][]sample, len(opened))
	for _, taken := range kept {
		for i, s := range taken {
			samples[i] = append(samples[i], s...)
		}
	}
	return samples, at, err
}

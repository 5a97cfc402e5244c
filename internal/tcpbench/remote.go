package tcpbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"exnet/internal/ctxend"
	"exnet/internal/worker"
)

// remoteVersion counts the forms of what a Remote and Serve say to each other.
const remoteVersion = 1

// maxRemote bounds what Serve does for somebody it does not know.
const (
	maxRemoteTime    = time.Hour
	maxRemoteSize    = 64 << 20
	maxRemoteStreams = 256
)

// request is what a Remote sends: the listening end's job.
type request struct {
	Version int `json:"dsbench"`
	Job     job `json:"job"`
}

// reply is a line from the other side. One of the fields is set.
type reply struct {
	Address string     `json:"address,omitempty"` // where the end listens
	Result  *jobResult `json:"result,omitempty"`
	Error   string     `json:"error,omitempty"`
}

// Remote measures between this host and another, on which Serve runs.
//
// Concurrency: one measurement at a time, for its own sake.
type Remote struct {
	Addr string // host:port of Serve
}

// Hello asks whether somebody serves there.
func (r Remote) Hello(ctx context.Context) error {
	c, err := r.dial(ctx)
	if err != nil {
		return err
	}
	return c.Close()
}

func (r Remote) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", r.Addr)
	if err != nil {
		return nil, fmt.Errorf("no dsbench serves at %s: start \"dsbench serve\" there (%w)", r.Addr, err)
	}
	return c, nil
}

// Measure measures what spec says. The other host listens; this one connects.
func (r Remote) Measure(ctx context.Context, spec Spec) (result Result, err error) {
	err = spec.Bound(ctx, func(ctx context.Context) error {
		result, err = r.measure(ctx, spec)
		return err
	})
	return result, err
}

func (r Remote) measure(ctx context.Context, spec Spec) (Result, error) {
	c, err := r.dial(ctx)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	defer ctxend.Do(ctx, func() { c.Close() })()
	server := job{Spec: spec, CPU: spec.CPUs.Server, Listens: true}
	if err := json.NewEncoder(c).Encode(request{remoteVersion, server}); err != nil {
		return Result{}, fmt.Errorf("asking %s: %w", r.Addr, err)
	}
	lines := json.NewDecoder(c)
	next := func() (l reply, err error) {
		if err = lines.Decode(&l); err != nil {
			return l, fmt.Errorf("%s does not answer as dsbench serve does: %w", r.Addr, err)
		}
		if l.Error != "" {
			return l, fmt.Errorf("%s: %s", r.Addr, l.Error)
		}
		return l, nil
	}
	l, err := next()
	if err != nil {
		return Result{}, err
	}
	client := job{Spec: spec, CPU: spec.CPUs.Client}
	client.Broker = ""
	if client.Address, err = netip.ParseAddrPort(l.Address); err != nil {
		return Result{}, fmt.Errorf("%s listens at %q: %w", r.Addr, l.Address, err)
	}
	w, err := worker.Start(ctx, nil, WorkerCommand, client)
	if err != nil {
		return Result{}, err
	}
	defer w.Stop()
	var here jobResult
	there := make(chan error, 1)
	var far jobResult
	go func() {
		l, err := next()
		if err == nil && l.Result == nil {
			err = fmt.Errorf("%s sent no result", r.Addr)
		}
		if err == nil {
			far = *l.Result
		} else {
			w.Kill()
		}
		there <- err
	}()
	hereErr := w.Result(&here)
	if hereErr != nil {
		c.Close() // nobody wants its result
	}
	farErr := <-there
	switch { // the first to fail knows why
	case farErr != nil && !errors.Is(farErr, net.ErrClosed):
		return Result{}, farErr
	case hereErr != nil:
		return Result{}, hereErr
	case farErr != nil:
		return Result{}, farErr
	}
	return spec.result(counter(spec, here, far), here.cpu()+far.cpu())
}

// Serve does the listening ends' jobs of whoever connects to l, one after the
// other, until ctx is done. Said is told what goes on.
func Serve(ctx context.Context, l net.Listener, said func(string)) error {
	defer ctxend.Do(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for a client: %w", err)
		}
		if err := serveOne(ctx, c, said); err != nil && ctx.Err() == nil {
			said(fmt.Sprintf("%v: %v", c.RemoteAddr(), err))
		}
		c.Close()
	}
}

// serveOne does one client's job.
func serveOne(ctx context.Context, c net.Conn, said func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer ctxend.Do(ctx, func() { c.Close() })()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second)) // a request comes at once
	in := json.NewDecoder(io.LimitReader(c, 1<<16))
	var req request
	if err := in.Decode(&req); err != nil {
		if errors.Is(err, io.EOF) {
			return nil // it only looked
		}
		return fmt.Errorf("its request: %w", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	out := json.NewEncoder(c)
	refuse := func(err error) error {
		return errors.Join(err, out.Encode(reply{Error: err.Error()}))
	}
	if req.Version != remoteVersion {
		return refuse(fmt.Errorf("it speaks version %d, this dsbench %d", req.Version, remoteVersion))
	}
	j, err := req.Job.fromAfar(c.LocalAddr())
	if err != nil {
		return refuse(err)
	}
	said(fmt.Sprintf("%v: %s, %d bytes, %v", c.RemoteAddr(), j.Kind, j.Size, j.Duration))
	w, err := worker.Start(ctx, nil, WorkerCommand, j)
	if err != nil {
		return refuse(err)
	}
	defer w.Stop()
	go func() { // the client's end ends the job
		_, _ = io.Copy(io.Discard, c)
		cancel()
	}()
	var addr netip.AddrPort
	if err := w.Note(&addr); err != nil {
		return refuse(err)
	}
	if err := out.Encode(reply{Address: addr.String()}); err != nil {
		return err
	}
	var result jobResult
	if err := w.Result(&result); err != nil {
		return refuse(err)
	}
	return out.Encode(reply{Result: &result})
}

// fromAfar returns the job that is done for somebody else: nothing but the
// measurement is theirs to choose.
func (j job) fromAfar(local net.Addr) (job, error) {
	if err := j.check(); err != nil {
		return j, err
	}
	if j.Size > maxRemoteSize || j.Streams > maxRemoteStreams || j.Duration+j.Warmup > maxRemoteTime ||
		j.Duration > maxRemoteTime || j.Warmup > maxRemoteTime || j.Buffers < 0 || j.Buffers > maxRemoteSize || j.Ring > maxRemoteSize {
		return j, errors.New("a server allows no more for others")
	}
	addr, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return j, err
	}
	j.Listens, j.AlsoCPU, j.Broker = true, nil, ""
	j.Address = netip.AddrPortFrom(addr.Addr().Unmap(), 0)
	return j, nil
}

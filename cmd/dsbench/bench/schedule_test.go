package bench

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/coredist"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/stats"
	"exnet/internal/tcpbench"
)

// fakePath records what is done to it in a log that all paths share.
type fakePath struct {
	name     string
	log      *[]string
	setupErr error
	closeErr error
	take     func(size int) (float64, error) // Gbit/s or microseconds; nil: 1
}

func (p *fakePath) Info() paths.Info { return paths.Info{MTU: 1500} }

func (p *fakePath) note(what string) { *p.log = append(*p.log, what+" "+p.name) }

func (p *fakePath) Setup(context.Context) error {
	p.note("setup")
	return p.setupErr
}

func (p *fakePath) value(size int) (float64, error) {
	p.note("take")
	if p.take == nil {
		return 1, nil
	}
	return p.take(size)
}

func (p *fakePath) Measure(_ context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	v, err := p.value(spec.Size)
	r := tcpbench.Result{Elapsed: time.Second, CPU: 0.5}
	h := stats.NewHistogram()
	switch spec.Kind {
	case tcpbench.Stream:
		r.Bytes = int64(v * 1e9 / 8)
	case tcpbench.Rate:
		r.Bytes = int64(v * 1e6 * float64(spec.Size))
	case tcpbench.PingPong:
		r.CPU = 1.5
		for range 1000 {
			h.Record(time.Duration(2000 * v))
		}
		h.Record(time.Duration(20000 * v))
		r.Bytes, r.Latency = h.Count()*int64(spec.Size), h
	case tcpbench.CRR:
		for range int(100 * v) {
			h.Record(time.Duration(1e7 / v))
		}
		r.Bytes, r.Latency = h.Count()*int64(spec.Size), h
	}
	return r, err
}

func (p *fakePath) Close() error {
	p.note("close")
	return p.closeErr
}

// fakeDistance has all tests of this package measure this distance.
var fakeDistance = coredist.Distance{Cores: coredist.Near, Line: 0.06, HandOver: 1.9, Hot: 115, Cold: 21.5}

func init() {
	distance = func() coredist.Distance { return fakeDistance }
	look = distance
}

// fakeOptions are options for these paths, the first being the control.
func fakeOptions(measureName string, fakes ...*fakePath) options {
	m, _ := measureOf(measureName)
	o := options{
		measure: m, control: fakes[0].name, sizes: []int{64}, streams: 1,
		duration: 2 * time.Second, warmup: 300 * time.Millisecond, runs: 2,
		congestion: "cubic", cpus: tcpbench.Anywhere(),
	}
	for _, p := range fakes {
		o.paths = append(o.paths, paths.Kind{Name: p.name, Open: func(paths.NodeConfig) paths.Path { return p }})
	}
	return o
}

func fakeMachine() result.Machine {
	return result.Machine{
		Commit: "0123456789ab", CPU: "Example CPU @ 2.00GHz", CPUs: 2, Kernel: "6.18.0", Go: "go1.26.8",
		Date: "2026-11-20T10:00:00Z",
	}
}

// recorder keeps the rows.
type recorder struct{ got []result.Row }

func (r *recorder) rows(rows []result.Row) error {
	r.got = append(r.got, rows...)
	return nil
}

// printAll measures and prints.
func printAll(t *testing.T, w io.Writer, o options, m result.Machine) error {
	out := &printer{w: w, o: o, m: m}
	return errors.Join(runAll(t.Context(), o, m, out.printRows, quiet(o)), out.finishTable())
}

func quiet(o options) *progress { return newProgress(io.Discard, o.countMeasurements(), 0) }

func TestRunAllInterleaves(t *testing.T) {
	var log []string
	o := fakeOptions("stream", &fakePath{name: "a", log: &log}, &fakePath{name: "b", log: &log})
	o.sizes = []int{1, 2}
	var out recorder
	if err := runAll(t.Context(), o, fakeMachine(), out.rows, quiet(o)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"setup a", "setup b",
		"take a", "take b", "take a", "take b", // size 1
		"take a", "take b", "take a", "take b", // size 2
		"close a", "close b",
	}
	if !slices.Equal(log, want) {
		t.Errorf("log %q, want %q", log, want)
	}
	if len(out.got) != 4 {
		t.Errorf("%d rows", len(out.got))
	}
}

// TestRunAllAtOneDistance: rounds during which the host moved the CPUs do not count, and the row
// has the distance of those that do.
func TestRunAllAtOneDistance(t *testing.T) {
	far := coredist.Distance{Cores: coredist.Far, Line: 0.25, HandOver: 8}
	var log []string
	a := &fakePath{name: "a", log: &log}
	takes := 0.0
	a.take = func(int) (float64, error) { takes++; return takes, nil }
	o := fakeOptions("stream", a)
	looks := 0
	look = func() coredist.Distance {
		if looks++; looks == 1 {
			return fakeDistance
		}
		return far
	}
	t.Cleanup(func() { look = distance })
	var out recorder
	p := quiet(o)
	if err := runAll(t.Context(), o, fakeMachine(), out.rows, p); err != nil {
		t.Fatal(err)
	}
	want := far
	want.Hot, want.Cold = fakeDistance.Hot, fakeDistance.Cold
	if len(out.got) != 1 || !slices.Equal(out.got[0].Values, []float64{2, 3}) || out.got[0].Distance != want || p.done != 3 || p.total != 3 {
		t.Errorf("rows %+v, %d of %d done", out.got, p.done, p.total)
	}
}

func TestRunAllSetupFails(t *testing.T) {
	var log []string
	o := fakeOptions("stream", &fakePath{name: "a", log: &log},
		&fakePath{name: "b", log: &log, setupErr: errors.New("no device: do this")},
		&fakePath{name: "c", log: &log})
	var out recorder
	err := runAll(t.Context(), o, fakeMachine(), out.rows, quiet(o))
	if err == nil || err.Error() != "path b: no device: do this" {
		t.Errorf("error %v", err)
	}
	if want := []string{"setup a", "setup b", "close a", "close b"}; !slices.Equal(log, want) {
		t.Errorf("log %q, want %q", log, want)
	}
	if len(out.got) != 0 {
		t.Errorf("%d rows", len(out.got))
	}
}

// TestRunAllSetupInterrupted: what Setup says about it then is of no use.
func TestRunAllSetupInterrupted(t *testing.T) {
	var log []string
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := fakeOptions("stream", &fakePath{name: "a", log: &log, setupErr: context.Canceled})
	var out recorder
	err := runAll(ctx, o, fakeMachine(), out.rows, quiet(o))
	if err == nil || err.Error() != "interrupted while setting up a" {
		t.Errorf("error %v", err)
	}
	if want := []string{"setup a", "close a"}; !slices.Equal(log, want) {
		t.Errorf("log %q, want %q", log, want)
	}
}

func TestRunAllKeepsWhatWasMeasured(t *testing.T) {
	var log []string
	b := &fakePath{name: "b", log: &log}
	takes := 0
	b.take = func(int) (float64, error) {
		if takes++; takes > 3 {
			return 0, errors.New("cable cut")
		}
		return 1, nil
	}
	o := fakeOptions("stream", &fakePath{name: "a", log: &log}, b)
	o.sizes = []int{1, 2, 3}
	var out recorder
	err := runAll(t.Context(), o, fakeMachine(), out.rows, quiet(o))
	if err == nil || err.Error() != "path b, 2 bytes, run 2: cable cut" {
		t.Errorf("error %v", err)
	}
	var got []string
	for _, r := range out.got {
		got = append(got, strings.Repeat(r.Path, r.Runs)+strings.Repeat("'", r.Size))
	}
	if want := []string{"aa'", "bb'", "aa''", "b''"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if want := []string{"close a", "close b"}; !slices.Equal(log[len(log)-2:], want) {
		t.Errorf("log %q does not end with %q", log, want)
	}
}

// TestRunAllTolerates: a path that fails is left out, the others go on.
func TestRunAllTolerates(t *testing.T) {
	var log []string
	b := &fakePath{name: "b", log: &log, take: func(int) (float64, error) { return 0, errors.New("cable cut") }}
	o := fakeOptions("stream", &fakePath{name: "a", log: &log}, b)
	o.sizes = []int{1, 2}
	var told []string
	o.tolerate = func(path string, err error) { told = append(told, path+": "+err.Error()) }
	var out recorder
	p := quiet(o)
	if err := runAll(t.Context(), o, fakeMachine(), out.rows, p); err != nil {
		t.Fatal(err)
	}
	if want := []string{"b: path b, 1 bytes, run 1: cable cut"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if len(out.got) != 2 || out.got[1].Path != "a" || out.got[1].Runs != 2 || p.done != p.total {
		t.Errorf("rows %+v, %d of %d done", out.got, p.done, p.total)
	}
}

func TestRunAllInterrupted(t *testing.T) {
	var log []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &fakePath{name: "b", log: &log, closeErr: errors.New("still there")}
	b.take = func(int) (float64, error) {
		cancel()
		return 1, nil
	}
	o := fakeOptions("stream", &fakePath{name: "a", log: &log}, b)
	var out recorder
	err := runAll(ctx, o, fakeMachine(), out.rows, quiet(o))
	if err == nil || err.Error() != "interrupted after 2 of 4 measurements\npath b: cleaning up: still there" {
		t.Errorf("error %v", err)
	}
	if len(out.got) != 2 {
		t.Errorf("%d rows", len(out.got))
	}
}

// TestRunAllNothingMeasured: an error before the first figure prints no table.
func TestRunAllNothingMeasured(t *testing.T) {
	var log []string
	a := &fakePath{name: "a", log: &log, take: func(int) (float64, error) { return 0, errors.New("no") }}
	o := fakeOptions("stream", a)
	for _, o.json = range []bool{false, true} {
		var text strings.Builder
		if err := printAll(t, &text, o, fakeMachine()); err == nil {
			t.Error("no error")
		}
		if text.Len() > 0 {
			t.Errorf("printed %q", text.String())
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestRunAllCannotWrite(t *testing.T) {
	var log []string
	o := fakeOptions("stream", &fakePath{name: "a", log: &log})
	for _, o.json = range []bool{false, true} {
		err := printAll(t, fullDisk{}, o, fakeMachine())
		if err == nil || !strings.Contains(err.Error(), "writing the results: no space left on device") {
			t.Errorf("JSON %v: error %v", o.json, err)
		}
	}
}

package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/tcpbench"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, words string) (options, error) {
	t.Helper()
	args := strings.Fields(words)
	m, ok := measureOf(args[0])
	if !ok {
		t.Fatalf("no measure %s", args[0])
	}
	return parseOptions(m, args[1:])
}

// parseOptions reads the arguments behind the measure's name.
func parseOptions(m pathMeasure, args []string) (options, error) {
	fs := pflag.NewFlagSet(m.name, pflag.ContinueOnError)
	f := newMeasureFlags(m, fs)
	if err := fs.Parse(args); err != nil {
		return options{}, cli.FlagError(fs, err)
	}
	if err := command.NoArgs(nil, fs.Args()); err != nil {
		return options{}, err
	}
	return f.readOptions()
}

func pathNames(o options) []string {
	var names []string
	for _, k := range o.paths {
		names = append(names, k.Name)
	}
	return names
}

func TestOptionsDefaults(t *testing.T) {
	o, err := parse(t, "stream")
	if err != nil {
		t.Fatal(err)
	}
	if got := pathNames(o); !slices.Equal(got, []string{"lo", "veth", "exn", "exn-shm", "ds", "ds-zcopy"}) || o.control != "veth" || o.controlAdded {
		t.Errorf("paths %v, control %q, added %v", got, o.control, o.controlAdded)
	}
	want := tcpbench.Spec{Kind: tcpbench.Stream, Streams: 1, Size: 131072, Duration: time.Second, Warmup: 300 * time.Millisecond, Congestion: "cubic", CPUs: tcpbench.Anywhere()}
	if got := o.specOf(o.sizes[0]); got != want {
		t.Errorf("spec = %+v, want %+v", got, want)
	}
	if o.streams != 1 || o.runs != 5 || o.json || len(o.sizes) != 1 || o.countMeasurements() != 30 {
		t.Errorf("options = %+v", o)
	}
	o, err = parse(t, "pingpong")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.sizes, []int{64}) {
		t.Errorf("pingpong's sizes = %v", o.sizes)
	}
	if cpus := tcpbench.AllowedCPUs(); len(cpus) > 1 && o.cpus != (tcpbench.Placement{Client: cpus[0], Server: cpus[len(cpus)-1]}) {
		t.Errorf("pingpong's ends are on CPUs %v of %v", o.cpus, cpus)
	}
}

func TestOptionsControl(t *testing.T) {
	tests := []struct {
		words   string
		paths   string
		control string
		added   bool
	}{
		{"stream --paths lo", "lo", "lo", false},
		{"stream --paths veth", "veth", "veth", false},
		{"stream --paths lo,veth --control lo", "lo,veth", "lo", false},
		{"stream --paths lo --control veth", "veth,lo", "veth", true},
		{"stream --paths veth --control lo", "lo,veth", "lo", true},
		{"stream --paths exn", "veth,exn", "veth", true},
		{"stream --paths exn-shm --no-fast-path --mtu 9000", "veth,exn-shm", "veth", true},
		{"stream --paths exn,lo --control exn", "exn,lo", "exn", false},
	}
	for _, tt := range tests {
		o, err := parse(t, tt.words)
		if err != nil {
			t.Errorf("%s: %v", tt.words, err)
			continue
		}
		if got := strings.Join(pathNames(o), ","); got != tt.paths || o.control != tt.control || o.controlAdded != tt.added {
			t.Errorf("%s: paths %s, control %s, added %v; want %s, %s, %v",
				tt.words, got, o.control, o.controlAdded, tt.paths, tt.control, tt.added)
		}
	}
}

func TestOptionsSizes(t *testing.T) {
	o, err := parse(t, "stream --paths veth,exn --size 1,64,4k,2M,64m --streams 3 --runs 2")
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{1, 64, 4096, 2 << 20, 64 << 20}; !slices.Equal(o.sizes, want) {
		t.Errorf("sizes = %v, want %v", o.sizes, want)
	}
	if o.countMeasurements() != 5*2*2 {
		t.Errorf("%d measurements, want 20", o.countMeasurements())
	}
}

func TestOptionsErrors(t *testing.T) {
	tests := []struct {
		words string
		want  string // that the error must say
	}{
		{"stream --paths foo", `--paths: unknown path "foo": choose from lo, veth, relay, exn, exn-shm, net, `},
		{"stream --paths=", `--paths: unknown path ""`},
		{"stream --paths lo,lo", "--paths: lo is named twice"},
		{"stream --control foo", `--control: unknown path "foo": choose from lo, veth, relay, exn, exn-shm, net, `},
		{"stream --size 0", "--size: 0 is not between 1 and 67108864 bytes"},
		{"stream --size -5", "--size: -5 is not between 1 and 67108864 bytes"},
		{"stream --size 1,0", "--size: 0 is not between"},
		{"stream --size 65m", "--size: 65m is not between"},
		{"stream --size 99999999999999999999", "is not a size"},
		{"stream --size 1,", `--size: "" is not a size`},
		{"stream --size k", `--size: "k" is not a size`},
		{"stream --size big", `--size: "big" is not a size: write bytes, as in 64, 128k or 1m`},
		{"stream --duration 0", "--duration: use a time from 1ms to 1h, such as 250ms or 2s"},
		{"stream --duration 2", "--duration: use a time from 1ms to 1h"},
		{"stream --warmup -1s", "--warmup: use a time from 0s to 1h, such as"},
		{"stream --runs 0", "--runs: use a number from 1 to 1000"},
		{"stream --streams 0", "--streams: use a number from 1 to 256"},
		{"pingpong --streams 2", "there is no flag --streams"},
		{"stream --congestion a/b", "--congestion: name one of"},
		{"stream --congestion a-name-of-16-byte", "--congestion: name one of"},
		{"stream --cpus 0", "--cpus: \"0\": write any, apart, same, or the two ends' CPUs as in 0,1"},
		{"stream --cpus 0,9999", "--cpus: no CPU 9999 here: choose from"},
		{"stream --cpus -1,-1", "--cpus: no CPU -1 here"},
		{"stream --mtu 0", "is not between 1280 and 65535 bytes"},
		{"stream --mtu 65536", "is not between 1280 and 65535 bytes"},
		{"stream --paths lo --mtu 9000", "--mtu: only exn0 has it: add exn or exn-shm to --paths"},
		{"stream --paths lo --no-fast-path", "--no-fast-path: only exn0 has it: add exn or exn-shm to --paths"},
		{"stream --paths exn:fast", `--paths: unknown path "exn:fast": choose from exn:interrupt, exn:napi, exn:busy, exn:adaptive`},
		{"stream --paths lo:irq", `--paths: path lo has no receive modes: leave out ":irq"`},
		{"rate --no-delay", "there is no flag --no-delay"},
		{"stream --rest 1s", "there is no flag --rest"},
		{"pingpong --rest 11s", "--rest: use a time from 0s to 10s"},
		{"stream --mtu 1279", "--mtu: 1279 is not between 1280 and 65535 bytes"},
		{"crr --paths ds-zcopy", "--paths: ds-zcopy cannot be asked for crr"},
		{"stream --nonsense", "there is no flag --nonsense"},
		{"stream fast", `unexpected argument "fast"`},
	}
	for _, tt := range tests {
		_, err := parse(t, tt.words)
		if err == nil {
			t.Errorf("%s: no error", tt.words)
		} else if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want one line with %q", tt.words, err, tt.want)
		}
	}
}

func TestOptionsCPUs(t *testing.T) {
	cpus := tcpbench.AllowedCPUs()
	var o options
	if err := o.setCPUs("any"); err != nil || o.cpus.String() != "any" {
		t.Errorf("any: %v, %v", o.cpus, err)
	}
	both := tcpbench.Placement{Client: cpus[0], Server: cpus[0]}
	if err := o.setCPUs(both.String()); err != nil || o.cpus != both {
		t.Errorf("%v: %v, %v", both, o.cpus, err)
	}
}

func FuzzSizes(f *testing.F) {
	f.Add("1,64,128k")
	f.Add("64M,-1k")
	f.Fuzz(func(t *testing.T, list string) {
		var o options
		if o.setSizes(list) != nil {
			return
		}
		if len(o.sizes) != strings.Count(list, ",")+1 {
			t.Errorf("%q gave %v", list, o.sizes)
		}
		for _, n := range o.sizes {
			if n < 1 || n > paths.MaxSize {
				t.Errorf("%q gave %d", list, n)
			}
		}
	})
}

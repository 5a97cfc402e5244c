package exntun

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"exnet/arp"
	"exnet/node"
)

// parseDemo reads the arguments of "exn-tun demo".
func parseDemo(args []string) (demoOptions, error) {
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	o := newDemoOptions(fs)
	if err := fs.Parse(args); err != nil {
		return *o, err
	}
	err := o.setCommand(fs.Args(), fs.ArgsLenAtDash() == 0)
	return *o, err
}

func TestDemoDefaults(t *testing.T) {
	o, err := parseDemo(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := demoOptions{
		nodes: 2, mtu: 65535, macPrefix: arp.Prefix{0x2e, 0x87, 0x04, 0x07}, eager: 480,
		veloBudget: 64, rmaBudget: 64, congestion: "cubic",
		duration: 250 * time.Millisecond, runs: 3, in: 1,
	}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(demoOptions{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if o.interactive() {
		t.Error("the demonstration alone is taken for a command")
	}
}

func TestDemoFlags(t *testing.T) {
	o, err := parseDemo(strings.Fields("--nodes 5 --mtu 9000 --eager-threshold 9014 --velo-budget 1 --rma-budget 2" +
		" --mac-prefix 02-00-00-0A --no-fast-path --fair --congestion reno --duration 2s --runs 7 --stats --in 5" +
		" --serve one --serve two -- cmd --nodes 9 -- -x"))
	if err != nil {
		t.Fatal(err)
	}
	cluster := node.ClusterConfig{Nodes: 5, Node: node.Config{
		MTU: 9000, MACPrefix: arp.Prefix{2, 0, 0, 10}, EagerThreshold: 9014,
		VELOBudget: 1, RMABudget: 2, NoFastPath: true, CongestionControl: "reno",
	}}
	if got := o.clusterConfig(); !reflect.DeepEqual(got, cluster) {
		t.Errorf("nodes are configured as %+v, want %+v", got, cluster)
	}
	if !o.fair || !o.stats || o.duration != 2*time.Second || o.runs != 7 || o.in != 5 {
		t.Errorf("got %+v", o)
	}
	if !slices.Equal(o.serve, []string{"one", "two"}) {
		t.Errorf("serve %q", o.serve)
	}
	if want := []string{"cmd", "--nodes", "9", "--", "-x"}; !slices.Equal(o.command, want) {
		t.Errorf("command %q, want %q", o.command, want)
	}
}

// TestCommandThatLooksLikeDashes: only the first -- is exn-tun's.
func TestCommandThatLooksLikeDashes(t *testing.T) {
	o, err := parseDemo([]string{"--", "--", "x"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"--", "x"}; !slices.Equal(o.command, want) {
		t.Errorf("command %q, want %q", o.command, want)
	}
}

func TestServeKeepsItsWords(t *testing.T) {
	o, err := parseDemo([]string{"--serve", "iperf3 -s -p 7", "--shell"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.serve, []string{"iperf3 -s -p 7"}) || !o.interactive() {
		t.Errorf("got %+v", o)
	}
}

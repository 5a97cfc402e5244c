package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"exnet/napi"
	"exnet/node/control"
)

// A configuration file is taken, or refused in one line for each mistake, whatever it says, and
// what is taken has its defaults or is refused by those.
func FuzzConfigFile(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "exn.toml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	for _, s := range []string{
		"", `node = 65536`, `node = -1`, `mtu = 1`, `addresses = ["10.0.0.1"]`, `addresses = ["10.0.0.1/8", "fe80::1%x/64"]`,
		`faults = "drop=2"`, `topology = "torus:3x3x3"`, `topology = "file:/dev/null"`, `mac_prefix = "2e:87"`, "[receive]\nmode = \"busy\"\ncoalesce_usecs = -1",
		"[receive]\nvelo_budget = 0", `eager_threshold = 1e3`, `metrics = ":99999"`, `group = ""`, "fabric = 3", "fabric = \"a\nb\"", `x = 1`, "[[receive]]",
		"x = 1\nnode = -1", "\"a\\nb\" = 1", "[\"a\\nb\"]\nx = 1", "[receive]\n\"\\n\" = 1",
		`netns = "../../x"`, `interface = "exn0/../x"`, `congestion = "reno\u0000"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file") || strings.Contains(text, "topology") && strings.ContainsAny(text, "/.") {
			return // it would be opened
		}
		c, err := parsed(text)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "x.toml:") {
					t.Errorf("a mistake has more than a line: %q", err)
				}
			}
			return
		}
		c.Dir = "/run/exn/fuzz"
		d, err := c.WithDefaults()
		if err != nil {
			return
		}
		for what, s := range map[string]string{"fabric": d.Fabric, "interface": d.Interface} {
			if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r == '/' || unicode.IsControl(r) }) {
				t.Errorf("%s is %q", what, s)
			}
		}
		if d.MTU == 0 || d.EagerThreshold <= 0 || d.Receive.VELOBudget <= 0 || d.Receive.RMABudget <= 0 || d.Receive.Coalesce.Validate() != nil {
			t.Errorf("%+v", d)
		}
	})
}

// A client of the control socket says anything: what is taken of it is valid.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"op":"status"}`, `{"op":"set","settings":{"mode":"busy","coalesce_usecs":10,"coalesce_frames":3,"adaptive":true}}`,
		`{"op":"set","settings":{"coalesce_usecs":-1}}`, `{"op":"set","settings":{"coalesce_usecs":9223372036854775807}}`,
		`{"op":"set","settings":{"mode":"x"}}`, `{"op":"capture","snap_len":-5}`, `{"op":"x","y":1}`, `[`, `{"op":3}`, "{}{}", `{"op":"set","settings":null}`,
		`{"op":"set","settings":{"coalesce_frames":-2147483648}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in := json.NewDecoder(strings.NewReader(text))
		in.DisallowUnknownFields()
		var d Daemon
		for {
			var req control.Request
			if in.Decode(&req) != nil {
				return
			}
			if req.Op != control.OpStatus && req.Op != control.OpSet && req.Op != control.OpTopology && req.Op != control.OpSockets && req.Op != control.OpPorts && req.Op != control.OpStop {
				if r := d.answerRequest(req); r.Error == "" || r.Status != nil {
					t.Errorf("%q: %+v", req.Op, r)
				}
			}
			if req.Settings == nil {
				continue
			}
			c, err := req.Settings.Apply(napi.Coalesce{})
			if err == nil && (c.Validate() != nil || c.Delay < 0 || c.Delay > napi.MaxDelay || c.Frames < 0 || c.Adaptive && (c.Frames != 0 || c.Delay != 0)) {
				t.Errorf("%q: %+v", text, c)
			}
		}
	})
}

package bench

import (
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/display"
)

func TestTableGolden(t *testing.T) {
	for _, m := range []string{"stream", "pingpong", "crr", "rate", "cpu"} {
		text := output(t, m, false)
		fits(t, text)
		golden(t, m+".table", text)
	}
}

// With a rest before each message, head, table and JSON say so, and show quartiles.
func TestTableRest(t *testing.T) {
	o := fakeOptions("pingpong", examplePaths()...)
	o.runs, o.sizes, o.rest = 5, []int{64}, 20*time.Millisecond
	if got := o.specOf(64).Rest; got != o.rest {
		t.Errorf("a path is measured with %v of rest, want %v", got, o.rest)
	}
	for _, tt := range []struct {
		json bool
		want []string
	}{
		{false, []string{"20ms of rest before each message", "     p25       p75  "}},
		{true, []string{`"p25":`, `"p75":`, `"rest_s":0.02`}},
	} {
		var text strings.Builder
		o.json = tt.json
		if err := printAll(t, &text, o, fakeMachine()); err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %q in\n%s", want, text.String())
			}
		}
	}
}

// Where the control could not be measured, the table says why it has no ratios.
func TestTableWithoutControl(t *testing.T) {
	const note = "There are no ratios, since veth was not measured"
	for control, want := range map[string]bool{"veth": true, "a": false} {
		var log []string
		o := fakeOptions("stream", &fakePath{name: "a", log: &log})
		o.control = control
		var text strings.Builder
		if err := printAll(t, &text, o, fakeMachine()); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), note) != want {
			t.Errorf("control %s:\n%s", control, text.String())
		}
	}
}

// TestTableFits uses the widest that can occur.
func TestTableFits(t *testing.T) {
	var log []string
	for _, m := range []string{"stream", "pingpong", "crr", "rate", "cpu"} {
		wide := &fakePath{name: "exn-shm:napi", log: &log, take: figures(0.000001, 99999, 100000, 2, 1)}
		o := fakeOptions(m, wide, &fakePath{name: "b", log: &log})
		o.sizes, o.runs, o.streams = []int{paths.MaxSize}, 5, maxStreams
		machine := fakeMachine()
		machine.CPU = strings.Repeat("Processor ", 12)
		var text strings.Builder
		if err := printAll(t, &text, o, machine); err != nil {
			t.Fatal(err)
		}
		fits(t, text.String())
	}
}

func TestTableNoise(t *testing.T) {
	text := output(t, "stream", false)
	if n := strings.Count(text, "!"); n != 3 { // exn at two sizes, and the note
		t.Errorf("%d marks of noise, want 3:\n%s", n, text)
	}
	var log []string
	o := fakeOptions("stream", &fakePath{name: "a", log: &log})
	var calm strings.Builder
	if err := printAll(t, &calm, o, fakeMachine()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(calm.String(), "oisy") || strings.Contains(calm.String(), "!") {
		t.Errorf("a calm run is called noisy:\n%s", calm.String())
	}
}

func TestFigure(t *testing.T) {
	tests := []struct {
		v    float64
		want string
	}{
		{0, "0.000"}, {0.00149, "0.001"}, {0.9994, "0.999"}, {0.9996, "1.00"}, {1, "1.00"}, {9.994, "9.99"},
		{9.996, "10.0"}, {99.94, "99.9"}, {99.96, "100"}, {123456.7, "123457"},
	}
	for _, tt := range tests {
		if got := display.Figure(tt.v); got != tt.want {
			t.Errorf("figure(%v) = %s, want %s", tt.v, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	var b strings.Builder
	word := strings.Repeat("x", 49)
	result.Wrap(&b, word+" "+word+" y "+strings.Repeat("z", 120)+" end")
	want := word + " " + word + "\ny\n" + strings.Repeat("z", 120) + "\nend\n"
	if b.String() != want {
		t.Errorf("wrap gave\n%swant\n%s", b.String(), want)
	}
}

package infile

import (
	"strings"
	"testing"
)

func TestCheckTOML(t *testing.T) {
	deep := func(open, shut string, n int) string { return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n) }
	for _, text := range []string{
		"", "#", "# [[[\n", `a = "\"[[[[`, "x = '", `x = """`,
		"a = " + deep("[", "]", tomlDepth), "a = '" + deep("[", "]", 1000) + "'",
		`a = "` + strings.Repeat(`\"[`, 1000) + `"`, "a = \"\"\"\n" + strings.Repeat("[\"\n", 1000) + `"""`,
		"a = [" + strings.Repeat("1.5, ", 1000) + "]", "#" + strings.Repeat(".", 1000), strings.Repeat("a.b = 1\n", 1000),
		strings.Repeat("[[job]]\n", 1000),
	} {
		if err := CheckTOML(text); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	for _, text := range []string{
		"\n\na = " + deep("[", "]", 1000), "\n\na = " + deep("{a=", "}", 1000), "\n\n" + strings.Repeat("a.", 1000) + "a = 1",
		"#x\n\n[" + strings.Repeat("a.", 1000) + "a]", "a = '''\n\n''', " + deep("[", "]", 1000),
		"a = {b = 1, " + "\n\n" + strings.Repeat("a . ", 1000) + "a = 1}",
	} {
		if err := CheckTOML(text); err == nil || !strings.Contains(err.Error(), "line 3:") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func FuzzCheckTOML(f *testing.F) {
	f.Add("a = [\"\\\"\", '''\n''', {a.b = 1}] # [")
	f.Fuzz(func(_ *testing.T, text string) { _ = CheckTOML(text) })
}

package housetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The Helm chart makes, of its own values, what the manifest of the agent has.
func TestChart(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("../../packaging", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	comments := regexp.MustCompile(`(?m)^#.*\n| +#.*$`)
	values := comments.ReplaceAllString(read("helm/values.yaml"), "")
	// value is what follows the last part of a name, which no other one has.
	value := func(expression string) string {
		name, _, _ := strings.Cut(strings.TrimSpace(expression), " ")
		if name == ".Release.Namespace" {
			return "kube-system"
		}
		key := regexp.QuoteMeta(name[strings.LastIndex(name, ".")+1:])
		all := regexp.MustCompile(`(?m)^ *`+key+`: (.+)$`).FindAllStringSubmatch(values, -1)
		if len(all) != 1 {
			t.Fatalf("values.yaml has %d values of %s", len(all), name)
		}
		return all[0][1]
	}
	chart := regexp.MustCompile(`\{\{(.*?)\}\}`).ReplaceAllStringFunc(read("helm/templates/agent.yaml"), func(s string) string {
		return value(strings.Trim(s, "{}"))
	})
	got, want := comments.ReplaceAllString(chart, ""), comments.ReplaceAllString(read("kubernetes/agent.yaml"), "")
	if got != want {
		t.Errorf("the chart makes\n%s\nand the manifest has\n%s", got, want)
	}
}

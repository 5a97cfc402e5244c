package housetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"
)

// comments are those of YAML.
var comments = regexp.MustCompile(`(?m)^#.*\n| +#.*$`)

// packaged reads a file of packaging, without its comments.
func packaged(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../packaging", path))
	if err != nil {
		t.Fatal(err)
	}
	return comments.ReplaceAllString(string(b), "")
}

// chartValues reads the values of the chart. Each is the text that it has there, but for false.
func chartValues(t *testing.T) map[string]any {
	t.Helper()
	values := make(map[string]any)
	var inner map[string]any
	for line := range strings.Lines(packaged(t, "helm/values.yaml")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		to := values
		if strings.HasPrefix(line, " ") {
			to = inner
		}
		switch value = strings.TrimSpace(value); value {
		case "":
			inner = make(map[string]any)
			to[name] = inner
		case "false":
			to[name] = false
		default:
			to[name] = value
		}
	}
	return values
}

// chart is what the chart makes of a template.
func chart(t *testing.T, name string, values map[string]any) string {
	t.Helper()
	asIs := func(s string) string { return s } // what is text in YAML already
	tmpl, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"toJson": asIs}).Parse(packaged(t, "helm/templates/"+name))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := tmpl.Execute(&b, map[string]any{"Values": values, "Release": map[string]string{"Namespace": "kube-system"}}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimLeft(b.String(), "\n")
}

// monitored is the agent's manifest with the patches of the component for monitoring.
func monitored(t *testing.T, manifest string) string {
	t.Helper()
	component := packaged(t, "kubernetes/monitoring/kustomization.yaml")
	var more, lines strings.Builder
	for _, m := range regexp.MustCompile(`op: add, path: \S*/command/-, value: (.*)\}`).FindAllStringSubmatch(component, -1) {
		more.WriteString(", " + m[1])
	}
	for _, m := range regexp.MustCompile(`path: \S*/0/(\w+)\n +value: (.*)\n`).FindAllStringSubmatch(component, -1) {
		lines.WriteString("          " + m[1] + ": " + m[2] + "\n")
	}
	const end, mount = "--pin, /sys/fs/bpf/exnet]\n", "            - {name: bpf, mountPath: /sys/fs/bpf}\n"
	before, after, ok := strings.Cut(manifest, end)
	mounts := regexp.MustCompile(`path: \S*/volumeMounts/-, value: (.*)\}`).FindStringSubmatch(component)
	volume := regexp.MustCompile(`path: \S*/volumes/-, value: (.*)\}`).FindStringSubmatch(component)
	if !ok || more.Len() == 0 || lines.Len() == 0 || mounts == nil || volume == nil || !strings.Contains(after, mount) {
		t.Fatal("the agent's command or mount, or a patch, is not found")
	}
	after = strings.Replace(after, mount, mount+"            - "+mounts[1]+"\n", 1)
	return before + strings.TrimSuffix(end, "]\n") + more.String() + "]\n" + lines.String() + after + "        - " + volume[1] + "\n"
}

// The Helm chart makes, of its own values, what the manifests of the agent and the device plugin
// have, and with podMonitor what the component for monitoring makes of the agent's.
func TestChart(t *testing.T) {
	values, manifest := chartValues(t), packaged(t, "kubernetes/agent.yaml")
	check := func(name, want string) {
		t.Helper()
		if got := chart(t, name, values); got != want {
			t.Errorf("of %s the chart makes\n%s\nand the manifests have\n%s", name, got, want)
		}
	}
	check("agent.yaml", manifest)
	check("device.yaml", packaged(t, "kubernetes/device.yaml"))
	check("podmonitor.yaml", "")
	values["podMonitor"] = true
	check("agent.yaml", monitored(t, manifest))
	check("podmonitor.yaml", packaged(t, "kubernetes/monitoring/podmonitor.yaml"))
}

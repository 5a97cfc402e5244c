package e2e

import (
	"flag"
	"path/filepath"
	"testing"
)

var (
	kubernetes = flag.String("kubernetes", "", "`DIR` of Kubernetes' programs, which testdata/containers/kubernetes.sh builds there (40 minutes): with -debian and -tarball, a cluster of two nodes")
	tarball    = flag.String("tarball", "", "`DIR` an unpacked tarball of release.sh")
)

// A cluster of two nodes with a real control plane: the agent by kubectl apply -k, pods of one node
// direct through a Service, those of two nodes by TCP, rolling updates of the agent and of the
// pods under load, all back to TCP by direct off, a node that is drained, rules by annotations, a
// pod that means harm, an agent that is away, a network policy, and nothing left after kubectl
// delete, and after helm's chart.
func TestRootCluster(t *testing.T) {
	if *debian == "" || *kubernetes == "" || *tarball == "" {
		t.Skip("it wants Debian 13's containerd and Kubernetes: run it with -debian DIR -kubernetes DIR -tarball DIR")
	}
	root := rootSystems(t, "rootfs.sh")[0]
	outputOf(t, ".", "gcc", "-O2", "-pthread", "-o", filepath.Join(root, "bin/numbered"), "numbered/c/numbered.c")
	packaging := absolute(t, "../packaging")
	t.Setenv("KEEP", absolute(t, *kubernetes)+" "+absolute(t, *tarball)+" "+packaging)
	for _, tt := range []struct{ proxy, network string }{{"nftables", ""}, {"iptables", "host-gw"}, {"nftables", "vxlan"}} {
		t.Run(tt.proxy+" "+tt.network, func(t *testing.T) {
			inDebian(t, *tarball, "cluster.sh", absolute(t, *kubernetes), absolute(t, *tarball), root, filepath.Join(packaging, "kubernetes"), tt.proxy, tt.network)
		})
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

package clustercheck

import (
	"cmp"
	"net"
	"strconv"
)

// resource is what a pod asks for.
const resource = "exnet.io/direct"

// port is that of the servers.
const port = 4792

// roleLabel and nodeLabel tell the pods apart.
const (
	roleLabel = "exnet.io/role"
	nodeLabel = "kubernetes.io/hostname"
)

// The roles of pods.
const (
	server = "server"
	near   = "near"
	far    = "far"
)

// object is an object of Kubernetes, as JSON.
type object map[string]any

// pod returns a pod that runs exn-tun with these arguments on a node.
func pod(name, role, node, image string, args ...string) object {
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "labels": object{roleLabel: role}},
		"spec": object{
			"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
			"nodeSelector": object{nodeLabel: node},
			"tolerations":  []object{{"operator": "Exists"}},
			"containers": []object{{
				"name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
				"command":   append([]string{"/exnet/exn-tun", "cluster"}, args...),
				"resources": object{"limits": object{resource: 1}},
			}},
		},
	}
}

func serverPod(i int, node, image string) object {
	return pod(server+"-"+strconv.Itoa(i), server, node, image, "serve", ":"+strconv.Itoa(port))
}

func clientPod(i int, role, node, image, address string) object {
	within := nearTime
	if role == far {
		within = farTime
	}
	return pod(role+"-"+strconv.Itoa(i), role, node, image,
		"dial", "--result", "/dev/termination-log", "--within", within.String(), net.JoinHostPort(address, strconv.Itoa(port)))
}

// nodeList is what is needed of kubectl get nodes -o json.
type nodeList struct {
	Items []struct {
		Metadata struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Status struct {
			Allocatable map[string]string `json:"allocatable"`
			Conditions  []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	} `json:"items"`
}

// node is a node of the cluster; why: nothing can be tried there.
type node struct{ name, label, why string }

func (l *nodeList) nodes() (all []node) {
	for _, n := range l.Items {
		it := node{name: n.Metadata.Name, label: cmp.Or(n.Metadata.Labels[nodeLabel], n.Metadata.Name)}
		ready := false
		for _, c := range n.Status.Conditions {
			ready = ready || c.Type == "Ready" && c.Status == "True"
		}
		offered, _ := strconv.Atoi(n.Status.Allocatable[resource]) // none: 0
		switch {
		case !ready:
			it.why = "the node is not ready"
		case offered == 0:
			it.why = "the node does not offer " + resource + ": does its device plugin run? kubectl -n kube-system get pods -l app=exnet-device -o wide"
		}
		all = append(all, it)
	}
	return all
}

// podList is what is needed of kubectl get pods -o json.
type podList struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Phase      string `json:"phase"`
			Message    string `json:"message"`
			PodIP      string `json:"podIP"`
			Conditions []struct {
				Type    string `json:"type"`
				Status  string `json:"status"`
				Message string `json:"message"`
			} `json:"conditions"`
			Containers []struct {
				State struct {
					Waiting *struct {
						Reason  string `json:"reason"`
						Message string `json:"message"`
					} `json:"waiting"`
					Terminated *struct {
						ExitCode int    `json:"exitCode"`
						Message  string `json:"message"`
					} `json:"terminated"`
				} `json:"state"`
			} `json:"containerStatuses"`
		} `json:"status"`
	} `json:"items"`
}

// podState is how far a pod is.
type podState struct {
	phase   string
	ip      string
	message string // that of its program, at its end
	why     string // why it does not run
}

func (l *podList) states() map[string]podState {
	all := make(map[string]podState)
	for _, p := range l.Items {
		s := podState{phase: p.Status.Phase, ip: p.Status.PodIP, why: p.Status.Message}
		for _, c := range p.Status.Conditions {
			if c.Type == "PodScheduled" && c.Status == "False" {
				s.why = c.Message
			}
		}
		for _, c := range p.Status.Containers {
			if w := c.State.Waiting; w != nil {
				s.why = w.Reason
				if w.Message != "" {
					s.why += ": " + w.Message
				}
			}
			if t := c.State.Terminated; t != nil {
				s.message = t.Message
			}
		}
		all[p.Metadata.Name] = s
	}
	return all
}

package exntun

import (
	"context"
	"fmt"

	"exnet/cmd/exn-tun/internal/cri"
	"exnet/directsockets/broker"
)

// hostRoot is the host's root directory, and podAnnotation the annotation with a pod's rules.
const (
	hostRoot      = "/proc/1/root"
	podAnnotation = "exnet.io/direct"
)

// podRules reads the rules that a container's pod has by its annotation.
func podRules(ctx context.Context, container string) ([]broker.Rule, error) {
	return podRulesIn(ctx, hostRoot, container)
}

func podRulesIn(ctx context.Context, root, container string) ([]broker.Rule, error) {
	text, err := cri.Annotation(ctx, root, container, podAnnotation)
	if err != nil {
		return nil, err
	}
	rules, err := parseRules("annotation "+podAnnotation, text, "")
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		if r.Container != "" || r.PID != 0 {
			return nil, fmt.Errorf("annotation %s: %s: a pod's rules are about its own connections, without --container and --pid", podAnnotation, ruleText(r))
		}
	}
	return rules, nil
}

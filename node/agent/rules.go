package agent

import (
	"context"
	"time"

	"exnet/directsockets/broker"
)

// Rules finds the rules that come with a container, by its full ID. None: it has none, or its
// runtime keeps none. An error says what is wrong with them.
type Rules func(ctx context.Context, container string) ([]broker.Rule, error)

// Times of the search for a container's rules. Its broker waits for them for ruleWait, so that no
// connection is direct before they count; a runtime that takes longer holds up nobody else.
const (
	ruleWait = 100 * time.Millisecond
	ruleTime = 10 * time.Second
)

// findRules finds the rules of a container, and gives them to its broker. end ends the search.
func (a *agent) findRules(p *place, container string) (end func()) {
	if a.rules == nil || container == "" {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), ruleTime)
	done := make(chan struct{})
	log := a.logOf(p.account)
	go func() {
		defer close(done)
		rules, err := a.rules(ctx, container)
		switch {
		case ctx.Err() != nil && context.Cause(ctx) == context.Canceled:
		case err != nil:
			log.Warn("direct sockets: the pod has no rules", "name", p.whose.Name, "reason", err)
		case len(rules) == 0:
		case !p.server.SetRules(rules):
			log.Warn("direct sockets: the pod has no rules", "name", p.whose.Name, "reason", "there are too many")
		default:
			log.Info("direct sockets: the pod has rules", "name", p.whose.Name, "rules", len(rules))
			p.server.Switched()
		}
	}()
	t := time.NewTimer(ruleWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
	return func() { cancel(); <-done }
}

package client

import (
	"errors"
	"fmt"
)

// Find returns the path of the broker that serves the calling thread's network
// namespace, or that EXNET_TAP or EXNET_BROKER names, as a Client would find it. ErrNoBroker:
// there is none, or none that can be trusted.
func Find() (path string, err error) {
	all, err := brokerPlaces()
	if err != nil {
		return "", err
	}
	var errs []error
	for _, at := range all {
		err := checkReachable(at)
		if err == nil {
			return at.path, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("%w: %w", ErrNoBroker, errors.Join(errs...))
}

// Better returns the path of a broker that is better than the one at path: root's, of the
// calling thread's namespace, once it is there. "": there is none.
func Better(path string) string {
	all, err := brokerPlaces()
	if err != nil {
		return ""
	}
	root := betterPlace(all, path)
	if root == nil || checkReachable(*root) != nil {
		return ""
	}
	return root.path
}

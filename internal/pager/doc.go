// Package pager keeps the memory of unmodified programs within a share of this host's: pages that
// were not used for long go to a store, such as a lease on another node's memory, and come back
// when they are touched.
package pager

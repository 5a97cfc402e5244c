// Package segment is the memory of a direct socket (EXT-DS): its layout, and the
// two ends that move bytes through it without a system call. SPEC.md, in the
// directory above, is the normative text.
package segment

package godirect

// marker is what exn-go explain looks for in a binary. exn-go builds another file in place
// of this one.
var marker string

package report

// Parts of a report.
const (
	PartStream1  = "stream, one connection"  // figure 5.26a
	PartStream2  = "stream, two connections" // figure 5.26b
	PartCPUs     = "tuning: CPUs"            // figure 5.27a
	PartDSCPUs   = "tuning: CPUs of direct sockets"
	PartMTU      = "tuning: MTU" // figure 5.27b, and what else can be set
	PartBuffers  = "tuning: socket buffers"
	PartCoalesce = "tuning: coalescing"
	PartEager    = "tuning: eager threshold"
	PartLatency  = "half round trip"    // figure 5.28
	PartCPU      = "CPU time"           // figure 5.29
	PartOSULat   = "latency to 512 KiB" // figure 5.30
	PartOSUBW    = "bandwidth of all"   // figure 5.31
	PartRate     = "message rate"       // figure 5.32
	PartCRR      = "connections"        // not in the thesis
	PartPrograms = "programs"           // nor this
)

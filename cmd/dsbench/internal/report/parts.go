package report

import (
	"slices"

	"exnet/cmd/dsbench/internal/result"
)

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
	PartLatency  = "half round trip" // figure 5.28
	PartIdle     = "half round trip after a rest"
	PartCPU      = "CPU time"           // figure 5.29
	PartOSULat   = "latency to 512 KiB" // figure 5.30
	PartOSUBW    = "bandwidth of all"   // figure 5.31
	PartRate     = "message rate"       // figure 5.32
	PartCRR      = "connections"        // not in the thesis
	PartPrograms = "programs"           // nor this
)

// mpi is an MPI: as dsbench mpi calls it, and in words. Its parts (figures 5.30 to 5.32) begin with
// the name.
type mpi struct{ name, text string }

var mpis = []mpi{{"openmpi", "Open MPI"}, {"mpich", "MPICH"}}

// AddMPI takes in the rows of dsbench mpi, a part for each measure.
func (d *Data) AddMPI(rows []result.Row) {
	for _, r := range rows {
		i := slices.IndexFunc(d.Parts, func(p Part) bool { return p.ID == r.Measure })
		if i < 0 {
			i = len(d.Parts)
			d.Parts = append(d.Parts, Part{ID: r.Measure})
		}
		d.Parts[i].Rows = append(d.Parts[i].Rows, r)
	}
}

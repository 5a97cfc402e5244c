package bench

import "exnet/cmd/dsbench/internal/ports"

func init() { partMeasures = append(partMeasures, ports.Measure) }

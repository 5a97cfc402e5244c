package bench

import "exnet/cmd/dsbench/internal/memory"

func init() { partMeasures = append(partMeasures, memory.Measure) }

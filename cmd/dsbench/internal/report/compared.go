package report

import "bytes"

// Compared is what changed between two runs.
type Compared struct {
	A, B    string // names of the files
	Summary string
	Rows    []ComparedRow
}

// ComparedRow is what became of a figure, written for people.
type ComparedRow struct {
	Measure, Path string
	Size, Streams int
	Unit          string
	A, B, Ratio   string
	Verdict       string
	Counts        bool // it changed beyond the noise
}

// Page shows the comparison, in the frame of the report.
func (c Compared) Page() ([]byte, error) {
	v := reportView{
		Data: &Data{}, Title: "exnet: what changed", When: "A is " + c.A + ", B is " + c.B,
		About: []string{c.Summary}, Compared: &c,
	}
	var b bytes.Buffer
	err := reportPage.Execute(&b, v)
	return b.Bytes(), err
}

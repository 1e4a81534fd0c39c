package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Read reads a report.json. It refuses other JSON, since most of it would be read as a report in which nothing happened.
func Read(text []byte) (Report, error) {
	var out Report
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return Report{}, fmt.Errorf("%w: give the report.json of a run of this version of muster-sandbox", err)
	}
	switch {
	case d.More():
		return Report{}, errors.New("something comes after the report: give the file as the run wrote it")
	case out.Scenario == "":
		return Report{}, errors.New("it names no scenario: give the report.json of a run")
	}
	return out, nil
}

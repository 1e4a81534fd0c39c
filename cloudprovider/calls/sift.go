package calls

import (
	"errors"
	"slices"
)

// Sift makes a call for all names, in batches. A cloud refuses a whole batch because of one of its names, such as an unknown machine. Then
// Sift makes the call again for each of the parts of the batch, so that the other names succeed. parts returns nil if the error is not
// about one of the names; a batch of one has no parts.
func Sift(names []string, most int, call func([]string) error, parts func(batch []string, err error) [][]string) error {
	var errs []error
	for batch := range slices.Chunk(names, most) {
		err := call(batch)
		var again [][]string
		if err != nil && len(batch) > 1 {
			again = parts(batch, err)
		}
		if len(again) == 0 {
			errs = append(errs, err)
		}
		for _, part := range again {
			errs = append(errs, Sift(part, len(part), call, parts))
		}
	}
	return errors.Join(errs...)
}

// Halves splits a batch, for an error that does not say which of the names it is about.
func Halves(batch []string) [][]string {
	half := (len(batch) + 1) / 2
	return [][]string{batch[:half], batch[half:]}
}

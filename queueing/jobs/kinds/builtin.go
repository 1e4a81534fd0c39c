package kinds

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/batch"
)

//go:embed builtin/*.yaml
var files embed.FS

// All returns the built-in kinds and more.
func All(more ...*Kind) []jobs.Kind {
	out := []jobs.Kind{batch.Kind{}}
	for _, k := range slices.Concat(BuiltIn(), more) {
		out = append(out, k)
	}
	return out
}

// BuiltIn returns the kinds with a built-in stanza.
var BuiltIn = sync.OnceValue(func() (out []*Kind) {
	err := fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(file)
		if err != nil {
			return err
		}
		var s []Stanza
		if err := yaml.UnmarshalStrict(text, &s); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for i := range s {
			k, wrong := Compile(s[i], field.NewPath(s[i].Kind))
			if len(wrong) > 0 {
				return fmt.Errorf("%s: %w", file, wrong.ToAggregate())
			}
			out = append(out, k)
		}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program, and a test reads them
	}
	return out
})
